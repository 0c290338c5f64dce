// See kv_pool.h. A block is one piece of every layer.
#include "backend/cuda/kv_pool.h"

#include <cuda_fp16.h>
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "backend/validate_batch.h"
#include "base/bf16.h"

namespace kipp::cuda {
namespace {

constexpr size_t kPieceBytes = static_cast<size_t>(kKvBlockElements) * sizeof(uint16_t);

uint16_t fp16_of(uint16_t bf16) {
  return __half_as_ushort(__float2half_rn(bf16_to_f32(bf16)));
}
uint16_t bf16_of(uint16_t fp16) {
  return f32_to_bf16(__half2float(__ushort_as_half(fp16)));
}

}  // namespace

size_t KvPool::block_bytes(const Dimensions& dimensions) {
  return static_cast<size_t>(dimensions.num_layers) * kPieceBytes;
}

Result<KvPool> KvPool::create(const Dimensions& dimensions, int32_t num_blocks) {
  KIPP_ASSIGN(DeviceMemory memory,
              allocate_device(block_bytes(dimensions) * static_cast<size_t>(num_blocks), "the KV pool"));
  return KvPool(std::move(memory), dimensions.num_layers, num_blocks);
}

// One copy for each layer: the pitch of a two-dimensional one ends at 2 GiB, which is 16,384 blocks. Strides in
// elements.
Result<void> KvPool::copy_layers(uint16_t* to, int64_t to_stride, const uint16_t* from, int64_t from_stride,
                                 cudaStream_t stream) const {
  for (int64_t layer = 0; layer < num_layers_; ++layer) {
    KIPP_CUDA_TRY(
        cudaMemcpyAsync(to + layer * to_stride, from + layer * from_stride, kPieceBytes, cudaMemcpyDefault, stream),
        "copying a KV block");
  }
  return {};
}

Result<void> KvPool::copy(std::span<const int32_t> from, std::span<const int32_t> to, cudaStream_t stream) {
  KIPP_TRY(validate_block_copies(from, to, num_blocks_));
  for (size_t i = 0; i < from.size(); ++i) {
    KIPP_TRY(copy_layers(block(to[i]), layer_stride(), block(from[i]), layer_stride(), stream));
  }
  return {};
}

Result<void> KvPool::read(int32_t index, KvBlock& out, cudaStream_t stream) const {
  KIPP_TRY(validate_block(index, num_blocks_));
  out.values.resize(static_cast<size_t>(num_layers_) * static_cast<size_t>(kKvBlockElements));
  KIPP_TRY(copy_layers(out.values.data(), kKvBlockElements, block(index), layer_stride(), stream));
  KIPP_TRY(check(cudaStreamSynchronize(stream), "reading a KV block"));
  std::ranges::transform(out.values, out.values.begin(), bf16_of);
  return {};
}

Result<void> KvPool::write(int32_t index, const KvBlock& in, cudaStream_t stream) {
  KIPP_TRY(validate_block(index, num_blocks_));
  const size_t expected = static_cast<size_t>(num_layers_) * static_cast<size_t>(kKvBlockElements);
  if (in.values.size() != expected) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("writing a KV block: expected {} values, found {}", expected, in.values.size()));
  }
  std::vector<uint16_t> values(in.values.size());
  std::ranges::transform(in.values, values.begin(), fp16_of);
  KIPP_TRY(copy_layers(block(index), layer_stride(), values.data(), kKvBlockElements, stream));
  return check(cudaStreamSynchronize(stream), "writing a KV block");
}

}  // namespace kipp::cuda
