// Products of any number of generated rows by mma.sync, and of prompt rows where there is no wgmma: the warps of a
// block share the activations.
#include <algorithm>

#include "backend/cuda/kernels/generated_matmul_variants.h"
#include "backend/cuda/kernels/matmul_epilogue.cuh"
#include "backend/cuda/kernels/tensor_core.cuh"

namespace kipp::cuda {
namespace {

constexpr int32_t kManyThreads = 32 * kManyWarps;
constexpr int32_t kSharedOfTwo = 104 * 1024;  // with this much, two blocks share a multiprocessor

template <WeightType type, int32_t row_tiles, int32_t token_tiles, int32_t terms>
struct ManyShape {
  static constexpr int32_t kTokens = 8 * token_tiles;
  static constexpr int32_t kWeightBytes = kManyWarps * row_tiles * WeightStream<type>::kStageBytes;
  static constexpr int32_t kActivationBytes = terms * kTokens * kTileColumns * 2;
  static constexpr int32_t kSumBytes = type == WeightType::kAffine4Gs32 ? 2 * kTokens * 4 : 0;
  static constexpr int32_t kStageBytes = kWeightBytes + kActivationBytes;
  static constexpr int32_t kStages = std::min(8, (kSharedOfTwo - kSumBytes) / kStageBytes);
  static constexpr int32_t kSharedBytes = kStages * kStageBytes + kSumBytes;
  static_assert(kStages >= 3);
};

// [term][token][64 columns]; piece c of 16 bytes of an odd token lies at c ^ 4, so that two tokens' pieces do not meet
// in one bank.
template <int32_t tokens, int32_t terms>
__device__ void stage_activations(const Activations& x, int64_t first_token, int32_t column, std::byte* shared) {
#pragma unroll
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < terms * tokens * 8; i += kManyThreads) {
    const int32_t piece = i % 8;
    const int32_t token = i / 8 % tokens;
    const __half* from = i < tokens * 8 ? x.high : x.low;
    copy_async<16>(shared + (i / 8 * 8 + (piece ^ (token % 2 * 4))) * 16,
                   from + (first_token + token) * x.stride + column + piece * 8);
  }
}

template <int32_t tokens, int32_t terms>
__device__ ActivationFragment activations_at(const std::byte* shared, int32_t token, int32_t group, int32_t t) {
  const std::byte* from = shared + (token * 8 + ((group * 4 + t) ^ (token % 2 * 4))) * 16;
  ActivationFragment x{};
  x.high = *reinterpret_cast<const uint4*>(from);
  if constexpr (terms == 2) x.low = *reinterpret_cast<const uint4*>(from + tokens * 128);
  return x;
}

// Sums of the activations of each token and group of a stage: sums[group][token].
template <int32_t tokens, int32_t terms>
__device__ void sum_stage(const std::byte* shared, float* sums) {
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < 2 * tokens; i += kManyThreads) {
    float part[4];
#pragma unroll
    for (int32_t t = 0; t < 4; ++t) {
      part[t] = sum_of_activations(activations_at<tokens, terms>(shared, i % tokens, i / tokens, t));
    }
    sums[i] = sum_of_group(part[0], part[1], part[2], part[3]);
  }
}

// Grid: (row tiles of a block, slices or 1, groups of tokens). Each slice leaves its own sums.
template <WeightType type, int32_t row_tiles, int32_t token_tiles, int32_t terms>
__global__ void __launch_bounds__(kManyThreads, 1) many_rows_kernel(MatmulArgs args) {
  using Shape = ManyShape<type, row_tiles, token_tiles, terms>;
  using Stream = WeightStream<type>;
  extern __shared__ __align__(16) std::byte shared[];
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / 32;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const int32_t first_tile = (static_cast<int32_t>(blockIdx.x) * kManyWarps + warp) * row_tiles;
  const int64_t first_token = int64_t{blockIdx.z} * Shape::kTokens;
  const int32_t slice_k = args.matrix.padded_columns / kPaddedColumns;
  const int32_t num_k = gridDim.y == 1 ? slice_k * kNumSlices : slice_k;
  const int32_t first_k = static_cast<int32_t>(blockIdx.y) * slice_k;
  float* x_sums = reinterpret_cast<float*>(shared + Shape::kStages * Shape::kStageBytes);

  const auto stage = [&](int32_t k) {
    std::byte* to = shared + k % Shape::kStages * Shape::kStageBytes;
#pragma unroll
    for (int32_t r = 0; r < row_tiles; ++r) {
      Stream(args.matrix, first_tile + r)
          .stage(first_k + k, to + Shape::kActivationBytes + (warp * row_tiles + r) * Stream::kStageBytes);
    }
    stage_activations<Shape::kTokens, terms>(args.x, first_token, (first_k + k) * kTileColumns, to);
  };
  start_next();
  wait_for_previous();
#pragma unroll
  for (int32_t s = 0; s < Shape::kStages - 1; ++s) {
    if (s < num_k) stage(s);
    commit_copies();
  }

  TileSums<type, false> sum[row_tiles][token_tiles];  // of prompt rows only `high` counts: `low` stays 0
  for (int32_t k = 0; k < num_k; ++k) {
    wait_for_copies<Shape::kStages - 2>();
    __syncthreads();
    if (k + Shape::kStages - 1 < num_k) stage(k + Shape::kStages - 1);
    commit_copies();
    const std::byte* from = shared + k % Shape::kStages * Shape::kStageBytes;
    if constexpr (type == WeightType::kAffine4Gs32) {
      sum_stage<Shape::kTokens, terms>(from, x_sums);
      __syncthreads();
    }
    WeightFragment w[row_tiles][2];
#pragma unroll
    for (int32_t r = 0; r < row_tiles; ++r) {
#pragma unroll
      for (int32_t group = 0; group < 2; ++group) {
        w[r][group] =
            Stream::fragment(from + Shape::kActivationBytes + (warp * row_tiles + r) * Stream::kStageBytes, group);
      }
    }
#pragma unroll
    for (int32_t n = 0; n < token_tiles; ++n) {
      ActivationFragment x[2];
      float2 x_sum[2] = {};
#pragma unroll
      for (int32_t group = 0; group < 2; ++group) {
        x[group] = activations_at<Shape::kTokens, terms>(from, n * 8 + lane / 4, group, lane % 4);
        if constexpr (type == WeightType::kAffine4Gs32) {
          x_sum[group] = *reinterpret_cast<const float2*>(x_sums + group * Shape::kTokens + n * 8 + lane % 4 * 2);
        }
      }
#pragma unroll
      for (int32_t r = 0; r < row_tiles; ++r) {
        if constexpr (terms == 2) {
          multiply_tile<type>(sum[r][n], w[r], x, x_sum);
        } else {
          for (int32_t group = 0; group < 2; ++group) add_group(sum[r][n].high, w[r][group], x[group].high);
        }
      }
    }
  }
#pragma unroll
  for (int32_t r = 0; r < row_tiles; ++r) {
#pragma unroll
    for (int32_t n = 0; n < token_tiles; ++n) {
      const TileSums<type, false>& found = sum[r][n];
      for (int32_t i = 0; i < 2; ++i) {
        const int64_t token = first_token + n * 8 + lane % 4 * 2 + i;
        if (token < args.num_rows) {
          store_rows(args, token, first_tile + r, lane / 4, found.total(i), found.total(2 + i),
                     static_cast<int32_t>(blockIdx.y));
        }
      }
    }
  }
}

template <WeightType type, int32_t row_tiles, int32_t token_tiles, int32_t terms>
cudaError_t many_rows(const MatmulArgs& args, int32_t num_slices, const LaunchContext& context) {
  using Shape = ManyShape<type, row_tiles, token_tiles, terms>;
  const auto kernel = many_rows_kernel<type, row_tiles, token_tiles, terms>;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::kSharedBytes);
  if (error != cudaSuccess) return error;
  const int32_t blocks = args.matrix.padded_rows / (kTileRows * kManyWarps * row_tiles);
  const int32_t token_groups = (args.num_rows + Shape::kTokens - 1) / Shape::kTokens;
  return launch(kernel,
                {.grid = dim3(static_cast<uint32_t>(blocks), static_cast<uint32_t>(num_slices),
                              static_cast<uint32_t>(token_groups)),
                 .block = dim3(kManyThreads),
                 .shared_bytes = Shape::kSharedBytes},
                context, args);
}

template <WeightType type>
cudaError_t many_rows(const MatmulArgs& args, int32_t row_tiles, const LaunchContext& context) {
  if (args.num_rows <= 8) return many_rows<type, 1, 1, 2>(args, kNumSlices, context);
  if (args.num_rows <= 16) return many_rows<type, 1, 2, 2>(args, kNumSlices, context);
  if (args.num_rows <= 32) {
    return row_tiles == 1 ? many_rows<type, 1, 4, 2>(args, kNumSlices, context)
                          : many_rows<type, 2, 4, 2>(args, kNumSlices, context);
  }
  return row_tiles == 1 ? many_rows<type, 1, 8, 2>(args, kNumSlices, context)
                        : many_rows<type, 2, 8, 2>(args, kNumSlices, context);
}

}  // namespace

GeneratedPlan plan_many_rows(const DeviceMatrix& matrix, int32_t num_sms) {
  const int32_t blocks = matrix.padded_rows / (kTileRows * kManyWarps * 2) * kNumSlices;
  return {.num_partials = kNumSlices, .row_tiles = blocks < num_sms ? 1 : 2};
}

cudaError_t many_rows_matmul(const MatmulArgs& args, int32_t row_tiles, const LaunchContext& context) {
  switch (args.matrix.type) {
    case WeightType::kBf16: return many_rows<WeightType::kBf16>(args, row_tiles, context);
    case WeightType::kQ8_0: return many_rows<WeightType::kQ8_0>(args, row_tiles, context);
    case WeightType::kAffine4Gs32: return many_rows<WeightType::kAffine4Gs32>(args, row_tiles, context);
  }
  return cudaErrorInvalidValue;
}

cudaError_t prompt_matmul_portable(const MatmulArgs& args, const LaunchContext& context) {
  if (args.matrix.type != WeightType::kBf16) return cudaErrorInvalidValue;
  return many_rows<WeightType::kBf16, 2, 8, 1>(args, 1, context);
}

}  // namespace kipp::cuda
