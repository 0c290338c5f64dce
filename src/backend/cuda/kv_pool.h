// The KV pool in device memory: [layer][block][k|v][kv_head][32][head_dim] FP16, of what was rounded to bf16.
#pragma once

#include <cstdint>
#include <span>

#include "backend/backend.h"
#include "backend/cuda/device.h"
#include "model/dimensions.h"

namespace kipp::cuda {

inline constexpr int64_t kKvBlockElements = int64_t{2} * kNumKvHeads * kBlockPositions * kHeadDim;  // of one layer

class KvPool {
 public:
  static size_t block_bytes(const Dimensions& dimensions);  // of all layers
  // Errors: kCapacity.
  static Result<KvPool> create(const Dimensions& dimensions, int32_t num_blocks);

  int32_t num_blocks() const { return num_blocks_; }
  uint16_t* data() const { return reinterpret_cast<uint16_t*>(memory_.data()); }
  int64_t layer_stride() const { return num_blocks_ * kKvBlockElements; }  // elements

  // In the order of the stream; read() waits for it. A KvBlock is bf16: to and from FP16 a number stays as it is from
  // 2^-14 to 2^16; above it becomes infinite, below it keeps multiples of 2^-24. Errors: kInvalidArgument (a block, a
  // size, unequal counts).
  Result<void> copy(std::span<const int32_t> from, std::span<const int32_t> to, cudaStream_t stream);
  Result<void> read(int32_t block, KvBlock& out, cudaStream_t stream) const;
  Result<void> write(int32_t block, const KvBlock& in, cudaStream_t stream);

 private:
  KvPool(DeviceMemory memory, int32_t num_layers, int32_t num_blocks)
      : memory_(std::move(memory)), num_layers_(num_layers), num_blocks_(num_blocks) {}
  Result<void> copy_layers(uint16_t* to, int64_t to_stride, const uint16_t* from, int64_t from_stride,
                           cudaStream_t stream) const;
  uint16_t* block(int32_t index) const { return data() + index * kKvBlockElements; }

  DeviceMemory memory_;
  int32_t num_layers_;
  int32_t num_blocks_;
};

}  // namespace kipp::cuda
