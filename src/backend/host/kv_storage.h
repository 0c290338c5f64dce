// The KV pool in host memory: [num_blocks][num_layers][k|v][num_kv_heads][32][head_dim], so that a block is its
// canonical form.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/backend.h"
#include "base/aligned_buffer.h"
#include "kipp/error.h"
#include "model/dimensions.h"
#include "model/operators.h"

namespace kipp::host {

constexpr size_t element_bytes(KvType type) {
  return type == KvType::kBf16 ? sizeof(uint16_t) : sizeof(float);
}

class KvStorage {
 public:
  // The memory is not initialised: what was not written must never be read. Errors: kCapacity.
  static Result<KvStorage> create(const Dimensions& dimensions, int32_t num_blocks, KvType type);
  static size_t block_elements(const Dimensions& dimensions);
  static size_t block_bytes(const Dimensions& dimensions, KvType type);

  int32_t num_blocks() const { return num_blocks_; }
  KvLayerView layer(int32_t layer);
  // Block ids below are checked. Errors: kInvalidArgument; read: kUnsupported for an FP32 pool.
  Result<void> copy(std::span<const int32_t> from, std::span<const int32_t> to);
  Result<void> read(int32_t block, KvBlock& out) const;
  Result<void> write(int32_t block, const KvBlock& in);

 private:
  AlignedBuffer<std::byte> memory_;
  int32_t num_blocks_ = 0;
  int32_t num_layers_ = 0;
  size_t block_elements_ = 0;
  size_t block_bytes_ = 0;
  KvType type_ = KvType::kBf16;
};

}  // namespace kipp::host
