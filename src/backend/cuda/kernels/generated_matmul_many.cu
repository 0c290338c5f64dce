// Products of any number of generated rows by mma.sync, and of prompt rows where there is no wgmma: the warps of a
// block share the activations.
#include <algorithm>

#include "backend/cuda/kernels/generated_matmul_variants.h"
#include "backend/cuda/kernels/matmul_epilogue.cuh"
#include "backend/cuda/kernels/tensor_core.cuh"

namespace kipp::cuda {
namespace {

constexpr int32_t kManyThreads = 32 * kManyWarps;
constexpr int32_t kManyStages = 3;

template <WeightType type, int32_t row_tiles, int32_t token_tiles, int32_t terms>
struct ManyShape {
  static constexpr int32_t kTokens = 8 * token_tiles;
  static constexpr int32_t kWeightBytes = kManyWarps * row_tiles * WeightStream<type>::kStageBytes;
  static constexpr int32_t kActivationBytes = terms * kTokens * kTileColumns * 2;
  static constexpr int32_t kSumBytes = type == WeightType::kAffine4Gs32 ? 2 * kTokens * 4 : 0;
  static constexpr int32_t kStageBytes = kWeightBytes + kActivationBytes;
  static constexpr int32_t kSharedBytes = kManyStages * kStageBytes + kSumBytes;
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

// What a launch consists of: units of a block's tiles of rows, one slice of the columns, and one group of tokens.
struct ManyWork {
  int32_t num_slices;  // 1 where all columns are summed in one go
  int32_t num_k;       // tiles of 64 columns of a slice
  int32_t num_token_groups;
  int32_t num_units;
};

// Walks the stages of all units of this block: weights are read again, if at all, while they are in the cache.
struct ManyPosition {
  int32_t unit = static_cast<int32_t>(blockIdx.x);
  int32_t k = 0;
  int32_t stage = 0;

  __device__ int32_t token_group(const ManyWork& work) const { return unit % work.num_token_groups; }
  __device__ int32_t slice(const ManyWork& work) const { return unit / work.num_token_groups % work.num_slices; }
  __device__ int32_t row_block(const ManyWork& work) const { return unit / work.num_token_groups / work.num_slices; }
  __device__ int32_t column_tile(const ManyWork& work) const { return slice(work) * work.num_k + k; }
  __device__ void advance(const ManyWork& work) {
    if (++k == work.num_k) {
      k = 0;
      unit += static_cast<int32_t>(gridDim.x);
    }
    if (++stage == kManyStages) stage = 0;
  }
};

template <WeightType type, int32_t row_tiles, int32_t token_tiles, int32_t terms>
struct ManyBlock {
  using Shape = ManyShape<type, row_tiles, token_tiles, terms>;
  using Stream = WeightStream<type>;
  using Sums = float[row_tiles][token_tiles][4];
  const MatmulArgs& args;
  const ManyWork& work;
  std::byte* shared;
  int32_t warp = static_cast<int32_t>(threadIdx.x) / 32;
  int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;

  __device__ int32_t row_tile(const ManyPosition& at, int32_t r) const {
    return (at.row_block(work) * kManyWarps + warp) * row_tiles + r;
  }
  __device__ std::byte* weights(const ManyPosition& at, int32_t r) const {
    return shared + at.stage * Shape::kStageBytes + Shape::kActivationBytes +
           (warp * row_tiles + r) * Stream::kStageBytes;
  }

  __device__ void stage_weights(const ManyPosition& at) const {
    if (at.unit >= work.num_units) return;
#pragma unroll
    for (int32_t r = 0; r < row_tiles; ++r) {
      Stream(args.matrix, row_tile(at, r)).stage(at.column_tile(work), weights(at, r));
    }
  }
  __device__ void stage_x(const ManyPosition& at) const {
    if (at.unit >= work.num_units) return;
    stage_activations<Shape::kTokens, terms>(args.x, int64_t{at.token_group(work)} * Shape::kTokens,
                                             at.column_tile(work) * kTileColumns,
                                             shared + at.stage * Shape::kStageBytes);
  }

  __device__ void multiply(const ManyPosition& at, const float* x_sums, Sums& sum) const {
    const std::byte* from = shared + at.stage * Shape::kStageBytes;
#pragma unroll 1
    for (int32_t group = 0; group < 2; ++group) {
      WeightFragment w[row_tiles];
#pragma unroll
      for (int32_t r = 0; r < row_tiles; ++r) w[r] = Stream::fragment(weights(at, r), group);
#pragma unroll
      for (int32_t n = 0; n < token_tiles; ++n) {
        const ActivationFragment x = activations_at<Shape::kTokens, terms>(from, n * 8 + lane / 4, group, lane % 4);
        float2 x_sum{};
        if constexpr (type == WeightType::kAffine4Gs32) {
          x_sum = *reinterpret_cast<const float2*>(x_sums + group * Shape::kTokens + n * 8 + lane % 4 * 2);
        }
        if constexpr (type == WeightType::kBf16) {
#pragma unroll
          for (int32_t r = 0; r < row_tiles; ++r) multiply_fp16<terms>(sum[r][n], w[r], x);
        } else {
          GroupParts part[row_tiles];
#pragma unroll
          for (int32_t r = 0; r < row_tiles; ++r) multiply_term<type>(part[r], w[r], x.high);
#pragma unroll
          for (int32_t r = 0; r < row_tiles; ++r) multiply_term<type>(part[r], w[r], x.low);
#pragma unroll
          for (int32_t r = 0; r < row_tiles; ++r) add_group<type>(sum[r][n], part[r], w[r], x_sum);
        }
      }
    }
  }

  __device__ void store(const ManyPosition& at, Sums& sum) const {
#pragma unroll
    for (int32_t r = 0; r < row_tiles; ++r) {
#pragma unroll
      for (int32_t n = 0; n < token_tiles; ++n) {
        float(&found)[4] = sum[r][n];
#pragma unroll
        for (int32_t i = 0; i < 2; ++i) {
          const int64_t token = int64_t{at.token_group(work)} * Shape::kTokens + n * 8 + lane % 4 * 2 + i;
          if (token < args.num_rows) {
            store_rows(args, token, row_tile(at, r), lane / 4, found[i], found[2 + i], at.slice(work));
          }
        }
        found[0] = found[1] = found[2] = found[3] = 0.0F;
      }
    }
  }
};

template <WeightType type, int32_t row_tiles, int32_t token_tiles, int32_t terms>
__global__ void __launch_bounds__(kManyThreads, 2)
    many_rows_kernel(const __grid_constant__ MatmulArgs args, const __grid_constant__ ManyWork work) {
  using Block = ManyBlock<type, row_tiles, token_tiles, terms>;
  using Shape = typename Block::Shape;
  extern __shared__ __align__(16) std::byte shared[];
  float* x_sums = reinterpret_cast<float*>(shared + kManyStages * Shape::kStageBytes);
  const Block block{args, work, shared};

  // Weights need not wait for the kernel before; the activations are its work.
  ManyPosition next;
  for (int32_t s = 0; s < kManyStages - 1; ++s, next.advance(work)) block.stage_weights(next);
  start_next();
  wait_for_previous();
  next = {};
  for (int32_t s = 0; s < kManyStages - 1; ++s, next.advance(work)) {
    block.stage_x(next);
    commit_copies();
  }
  typename Block::Sums sum = {};
  for (ManyPosition at; at.unit < work.num_units;) {
    wait_for_copies<kManyStages - 2>();
    __syncthreads();
    block.stage_weights(next);
    block.stage_x(next);
    next.advance(work);
    commit_copies();
    if constexpr (type == WeightType::kAffine4Gs32) {
      sum_stage<Shape::kTokens, terms>(shared + at.stage * Shape::kStageBytes, x_sums);
      __syncthreads();
    }
    block.multiply(at, x_sums, sum);
    if (at.k + 1 == work.num_k) block.store(at, sum);
    at.advance(work);
  }
}

template <WeightType type, int32_t row_tiles, int32_t token_tiles, int32_t terms>
cudaError_t many_rows(const MatmulArgs& args, int32_t num_slices, int32_t num_sms, const LaunchContext& context) {
  using Shape = ManyShape<type, row_tiles, token_tiles, terms>;
  const auto kernel = many_rows_kernel<type, row_tiles, token_tiles, terms>;
  cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::kSharedBytes);
  if (error != cudaSuccess) return error;
  int resident = 0;
  error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, kManyThreads, Shape::kSharedBytes);
  if (error != cudaSuccess) return error;
  ManyWork work{.num_slices = num_slices,
                .num_k = args.matrix.padded_columns / kTileColumns / num_slices,
                .num_token_groups = (args.num_rows + Shape::kTokens - 1) / Shape::kTokens,
                .num_units = 0};
  work.num_units = args.matrix.padded_rows / (kTileRows * kManyWarps * row_tiles) * num_slices * work.num_token_groups;
  return launch(kernel,
                {.grid = dim3(static_cast<uint32_t>(std::min(work.num_units, resident * num_sms))),
                 .block = dim3(kManyThreads),
                 .shared_bytes = Shape::kSharedBytes},
                context, args, work);
}

template <WeightType type>
cudaError_t many_rows(const MatmulArgs& args, int32_t row_tiles, int32_t num_sms, const LaunchContext& context) {
  if (args.num_rows <= 8) return many_rows<type, 1, 1, 2>(args, kNumSlices, num_sms, context);
  if (args.num_rows <= 16) return many_rows<type, 1, 2, 2>(args, kNumSlices, num_sms, context);
  if (args.num_rows <= 32) {
    return row_tiles == 1 ? many_rows<type, 1, 4, 2>(args, kNumSlices, num_sms, context)
                          : many_rows<type, 2, 4, 2>(args, kNumSlices, num_sms, context);
  }
  return row_tiles == 1 ? many_rows<type, 1, 8, 2>(args, kNumSlices, num_sms, context)
                        : many_rows<type, 2, 8, 2>(args, kNumSlices, num_sms, context);
}

cudaError_t number_of_sms(int32_t& num_sms) {
  int device = 0;
  const cudaError_t error = cudaGetDevice(&device);
  return error != cudaSuccess ? error : cudaDeviceGetAttribute(&num_sms, cudaDevAttrMultiProcessorCount, device);
}

}  // namespace

cudaError_t many_rows_matmul(const MatmulArgs& args, int32_t row_tiles, const LaunchContext& context) {
  int32_t num_sms = 0;
  if (const cudaError_t error = number_of_sms(num_sms); error != cudaSuccess) return error;
  switch (args.matrix.type) {
    case WeightType::kBf16: return many_rows<WeightType::kBf16>(args, row_tiles, num_sms, context);
    case WeightType::kQ8_0: return many_rows<WeightType::kQ8_0>(args, row_tiles, num_sms, context);
    case WeightType::kAffine4Gs32: return many_rows<WeightType::kAffine4Gs32>(args, row_tiles, num_sms, context);
  }
  return cudaErrorInvalidValue;
}

cudaError_t prompt_matmul_portable(const MatmulArgs& args, const LaunchContext& context) {
  if (args.matrix.type != WeightType::kBf16) return cudaErrorInvalidValue;
  int32_t num_sms = 0;
  if (const cudaError_t error = number_of_sms(num_sms); error != cudaSuccess) return error;
  return many_rows<WeightType::kBf16, 2, 8, 1>(args, 1, num_sms, context);
}

}  // namespace kipp::cuda
