// Products of up to kFewRows generated rows by mma.sync: every warp walks one slice of 16 weight rows by itself.
#include "backend/cuda/kernels/generated_matmul_variants.h"
#include "backend/cuda/kernels/matmul_epilogue.cuh"
#include "backend/cuda/kernels/tensor_core.cuh"

namespace kipp::cuda {
namespace {

constexpr int32_t kWarps = kNumSlices;  // of a block, for each tile of rows that it handles

// Of the few-rows kernel: how many tiles of 64 columns are on their way at a time.
template <WeightType type>
constexpr int32_t kFewStages = type == WeightType::kBf16 ? 6 : 8;
constexpr int32_t kFewActivationBytes = kFewRows * 2 * kTileColumns * 2;  // of a stage: rows, terms

// Activations of a stage: [group][term][token · 4 + t] pieces of 16 bytes, copied by the lanes that read them.
__device__ void stage_few_activations(const Activations& x, int32_t num_rows, int32_t column, std::byte* shared) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  if (lane / 4 >= num_rows) return;
  const int64_t from = int64_t{lane / 4} * x.stride + column + lane % 4 * 8;
#pragma unroll
  for (int32_t group = 0; group < 2; ++group) {
    std::byte* to = shared + (group * 2 * kFewRows * 4 + lane) * 16;
    copy_async<16>(to, x.high + from + group * 32);
    copy_async<16>(to + kFewRows * 4 * 16, x.low + from + group * 32);
  }
}

__device__ ActivationFragment few_activations(const std::byte* shared, int32_t group, int32_t num_rows) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  if (lane / 4 >= num_rows) return {};
  const std::byte* from = shared + (group * 2 * kFewRows * 4 + lane) * 16;
  return {*reinterpret_cast<const uint4*>(from), *reinterpret_cast<const uint4*>(from + kFewRows * 4 * 16)};
}

// Lanes 4g + t hold parts of token g's sum; wanted are those of tokens 2t and 2t + 1.
__device__ float2 few_sums(const ActivationFragment& x) {
  const float part = sum_of_activations(x);
  float parts[4];
#pragma unroll
  for (int32_t i = 0; i < 4; ++i) {
    parts[i] = __shfl_sync(0xFFFFFFFFU, part, static_cast<int32_t>(threadIdx.x) % 32 / 4 * 4 + i);
  }
  const float sum = sum_of_group(parts[0], parts[1], parts[2], parts[3]);
  const int32_t t = static_cast<int32_t>(threadIdx.x) % 4;
  return {__shfl_sync(0xFFFFFFFFU, sum, 8 * t), __shfl_sync(0xFFFFFFFFU, sum, 8 * t + 4)};
}

// Block: 4 warps for each tile of rows, one a slice.
template <WeightType type>
__global__ void few_rows_kernel(MatmulArgs args) {
  constexpr int32_t kStages = kFewStages<type>;
  using Stream = WeightStream<type>;
  extern __shared__ __align__(16) std::byte shared[];
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / 32;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const int32_t tiles_of_block = static_cast<int32_t>(blockDim.x) / 128;
  const int32_t tile = static_cast<int32_t>(blockIdx.x) * tiles_of_block + warp / kNumSlices;
  const int32_t num_k = args.matrix.padded_columns / kPaddedColumns;  // tiles of a slice
  const int32_t first = warp % kNumSlices * num_k;
  const Stream stream(args.matrix, tile);
  std::byte* weights = shared + warp * kStages * Stream::kStageBytes;
  std::byte* activations = shared + static_cast<int32_t>(blockDim.x) / 32 * kStages * Stream::kStageBytes +
                           warp * kStages * kFewActivationBytes;

  // Weights need not wait for the kernel before; the activations are its work.
#pragma unroll
  for (int32_t s = 0; s < kStages - 1; ++s) {
    if (s < num_k) stream.stage(first + s, weights + s * Stream::kStageBytes);
  }
  start_next();
  wait_for_previous();
#pragma unroll
  for (int32_t s = 0; s < kStages - 1; ++s) {
    if (s < num_k) {
      stage_few_activations(args.x, args.num_rows, (first + s) * kTileColumns, activations + s * kFewActivationBytes);
    }
    commit_copies();
  }

  TileSums<type, false> sum;
  for (int32_t k = 0; k < num_k; ++k) {
    const int32_t next = k + kStages - 1;
    if (next < num_k) {
      stream.stage(first + next, weights + next % kStages * Stream::kStageBytes);
      stage_few_activations(args.x, args.num_rows, (first + next) * kTileColumns,
                            activations + next % kStages * kFewActivationBytes);
    }
    commit_copies();
    wait_for_copies<kStages - 1>();
    const std::byte* w = weights + k % kStages * Stream::kStageBytes;
    const std::byte* a = activations + k % kStages * kFewActivationBytes;
    WeightFragment tile_weights[2];
    ActivationFragment x[2];
    float2 x_sum[2] = {};
#pragma unroll
    for (int32_t group = 0; group < 2; ++group) {
      tile_weights[group] = Stream::fragment(w, group);
      x[group] = few_activations(a, group, args.num_rows);
      if constexpr (type == WeightType::kAffine4Gs32) x_sum[group] = few_sums(x[group]);
    }
    multiply_tile<type>(sum, tile_weights, x, x_sum);
  }

  // [warp][16 rows][2 tokens]
  __shared__ float sums[2 * kWarps][kTileRows][kFewRows];
  if (lane % 4 == 0) {
    sums[warp][lane / 4][0] = sum.total(0);
    sums[warp][lane / 4][1] = sum.total(1);
    sums[warp][lane / 4 + 8][0] = sum.total(2);
    sums[warp][lane / 4 + 8][1] = sum.total(3);
  }
  __syncthreads();
  const int32_t index = static_cast<int32_t>(threadIdx.x);
  const int32_t token = index % kFewRows;
  const int32_t g = index / kFewRows % 8;
  const int32_t local = index / (kFewRows * 8);
  if (local < tiles_of_block && token < args.num_rows) {
    float total[2];
#pragma unroll
    for (int32_t half = 0; half < 2; ++half) {
      total[half] = sums[local * kWarps][g + 8 * half][token];
      for (int32_t slice = 1; slice < kNumSlices; ++slice) {
        total[half] += sums[local * kWarps + slice][g + 8 * half][token];
      }
    }
    store_rows(args, token, static_cast<int32_t>(blockIdx.x) * tiles_of_block + local, g, total[0], total[1]);
  }
}

template <WeightType type>
cudaError_t few_rows(const MatmulArgs& args, const LaunchContext& context) {
  const int32_t num_tiles = args.matrix.padded_rows / kTileRows;
  const int32_t tiles_of_block = num_tiles >= 256 ? 2 : 1;
  const int32_t warps = kWarps * tiles_of_block;
  const size_t shared =
      static_cast<size_t>(warps * kFewStages<type> * (WeightStream<type>::kStageBytes + kFewActivationBytes));
  const cudaError_t error = cudaFuncSetAttribute(few_rows_kernel<type>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                 static_cast<int>(shared));
  if (error != cudaSuccess) return error;
  return launch(few_rows_kernel<type>,
                {.grid = dim3(static_cast<uint32_t>(num_tiles / tiles_of_block)),
                 .block = dim3(static_cast<uint32_t>(32 * warps)),
                 .shared_bytes = shared},
                context, args);
}

}  // namespace

cudaError_t few_rows_matmul(const MatmulArgs& args, const LaunchContext& context) {
  switch (args.matrix.type) {
    case WeightType::kBf16: return few_rows<WeightType::kBf16>(args, context);
    case WeightType::kQ8_0: return few_rows<WeightType::kQ8_0>(args, context);
    case WeightType::kAffine4Gs32: return few_rows<WeightType::kAffine4Gs32>(args, context);
  }
  return cudaErrorInvalidValue;
}

}  // namespace kipp::cuda
