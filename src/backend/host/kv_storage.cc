// Copying whole blocks in and out of the pool.
#include "backend/host/kv_storage.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "backend/validate_batch.h"
#include "base/bf16.h"
#include "base/seeded_fault.h"

namespace kipp::host {

size_t KvStorage::block_elements(const Dimensions& dimensions) {
  return static_cast<size_t>(dimensions.num_layers) * 2 * static_cast<size_t>(dimensions.kv_width()) * kBlockPositions;
}

size_t KvStorage::block_bytes(const Dimensions& dimensions, KvType type) {
  return block_elements(dimensions) * element_bytes(type);
}

Result<KvStorage> KvStorage::create(const Dimensions& dimensions, int32_t num_blocks, KvType type) {
  KvStorage storage;
  storage.num_blocks_ = num_blocks;
  storage.num_layers_ = dimensions.num_layers;
  storage.block_elements_ = block_elements(dimensions);
  storage.block_bytes_ = block_bytes(dimensions, type);
  storage.type_ = type;
  KIPP_ASSIGN(storage.memory_,
              AlignedBuffer<std::byte>::create(static_cast<size_t>(num_blocks) * storage.block_bytes_, "KV pool"));
  return storage;
}

KvLayerView KvStorage::layer(int32_t layer) {
  if (seeded(Fault::kKvLayersShared)) layer = 0;
  const size_t layer_bytes = block_bytes_ / static_cast<size_t>(num_layers_);
  return {.blocks = memory_.data() + static_cast<size_t>(layer) * layer_bytes,
          .block_stride_bytes = static_cast<ptrdiff_t>(block_bytes_),
          .type = type_};
}

Result<void> KvStorage::copy(std::span<const int32_t> from, std::span<const int32_t> to) {
  KIPP_TRY(validate_block_copies(from, to, num_blocks_));
  const size_t num_bytes = seeded(Fault::kBlockCopyHalf) ? block_bytes_ / 2 : block_bytes_;
  for (size_t i = 0; i < from.size(); ++i) {
    std::memcpy(memory_.data() + static_cast<size_t>(to[i]) * block_bytes_,
                memory_.data() + static_cast<size_t>(from[i]) * block_bytes_, num_bytes);
  }
  return {};
}

Result<void> KvStorage::read(int32_t block, KvBlock& out) const {
  KIPP_TRY(validate_block(block, num_blocks_));
  if (type_ != KvType::kBf16) {
    return make_error(ErrorCode::kUnsupported, "reading a KV block: the pool holds FP32, the canonical form is bf16");
  }
  out.values.resize(block_elements_);
  std::memcpy(out.values.data(), memory_.data() + static_cast<size_t>(block) * block_bytes_, block_bytes_);
  return {};
}

Result<void> KvStorage::write(int32_t block, const KvBlock& in) {
  KIPP_TRY(validate_block(block, num_blocks_));
  if (in.values.size() != block_elements_) {
    return make_error(ErrorCode::kInvalidArgument, fmt::format("writing a KV block: expected {} values, found {}",
                                                               block_elements_, in.values.size()));
  }
  std::byte* target = memory_.data() + static_cast<size_t>(block) * block_bytes_;
  if (type_ == KvType::kBf16) {
    std::memcpy(target, in.values.data(), block_bytes_);
  } else {
    std::transform(in.values.begin(), in.values.end(), reinterpret_cast<float*>(target), bf16_to_f32);
  }
  return {};
}

}  // namespace kipp::host
