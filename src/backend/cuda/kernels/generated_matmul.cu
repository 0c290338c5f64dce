// Products of generated rows, bound by reading the weights. Up to 2 rows: every warp walks one slice of 16 weight rows by
// itself. More: the warps of a block share the activations. Both sum in the same order.
#include "backend/cuda/kernels/matmul.h"
#include "backend/cuda/kernels/matmul_epilogue.cuh"
#include "backend/cuda/kernels/tensor_core.cuh"

namespace kipp::cuda {
namespace {

constexpr int32_t kFewRows = 2;
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
  float sum = sum_of_activations(x);
  sum += __shfl_xor_sync(0xFFFFFFFFU, sum, 1);
  sum += __shfl_xor_sync(0xFFFFFFFFU, sum, 2);
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

  float sum[4] = {};
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
#pragma unroll
    for (int32_t group = 0; group < 2; ++group) {
      const ActivationFragment x = few_activations(a, group, args.num_rows);
      float2 x_sum{};
      if constexpr (type == WeightType::kAffine4Gs32) x_sum = few_sums(x);
      multiply_group<type, 2>(sum, Stream::fragment(w, group), x, x_sum);
    }
  }

  // [warp][16 rows][2 tokens]; the memory of stages that every warp is done with.
  __shared__ float sums[2 * kWarps][kTileRows][kFewRows];
  if (lane % 4 == 0) {
    sums[warp][lane / 4][0] = sum[0];
    sums[warp][lane / 4][1] = sum[1];
    sums[warp][lane / 4 + 8][0] = sum[2];
    sums[warp][lane / 4 + 8][1] = sum[3];
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

// ---- many rows -------------------------------------------------------------------------------------------------------

constexpr int32_t kManyWarps = 4;
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
    sums[i] = (part[0] + part[1]) + (part[2] + part[3]);
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
  float* x_sums = reinterpret_cast<float*>(shared + kManyStages * Shape::kStageBytes);

  const auto stage = [&](int32_t k) {
    std::byte* to = shared + k % kManyStages * Shape::kStageBytes;
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
  for (int32_t s = 0; s < kManyStages - 1; ++s) {
    if (s < num_k) stage(s);
    commit_copies();
  }

  float sum[row_tiles][token_tiles][4] = {};
  for (int32_t k = 0; k < num_k; ++k) {
    wait_for_copies<kManyStages - 2>();
    __syncthreads();
    if (k + kManyStages - 1 < num_k) stage(k + kManyStages - 1);
    commit_copies();
    const std::byte* from = shared + k % kManyStages * Shape::kStageBytes;
    if constexpr (type == WeightType::kAffine4Gs32) {
      sum_stage<Shape::kTokens, terms>(from, x_sums);
      __syncthreads();
    }
#pragma unroll
    for (int32_t group = 0; group < 2; ++group) {
      WeightFragment w[row_tiles];
#pragma unroll
      for (int32_t r = 0; r < row_tiles; ++r) {
        w[r] = Stream::fragment(from + Shape::kActivationBytes + (warp * row_tiles + r) * Stream::kStageBytes, group);
      }
#pragma unroll
      for (int32_t n = 0; n < token_tiles; ++n) {
        const ActivationFragment x =
            activations_at<Shape::kTokens, terms>(from, n * 8 + lane / 4, group, lane % 4);
        float2 x_sum{};
        if constexpr (type == WeightType::kAffine4Gs32) {
          x_sum = *reinterpret_cast<const float2*>(x_sums + group * Shape::kTokens + n * 8 + lane % 4 * 2);
        }
#pragma unroll
        for (int32_t r = 0; r < row_tiles; ++r) {
          multiply_group<type, terms>(sum[r][n], w[r], x, x_sum);
        }
      }
    }
  }
#pragma unroll
  for (int32_t r = 0; r < row_tiles; ++r) {
#pragma unroll
    for (int32_t n = 0; n < token_tiles; ++n) {
      const float(&found)[4] = sum[r][n];
      for (int32_t i = 0; i < 2; ++i) {
        const int64_t token = first_token + n * 8 + lane % 4 * 2 + i;
        if (token < args.num_rows) {
          store_rows(args, token, first_tile + r, lane / 4, found[i], found[2 + i], static_cast<int32_t>(blockIdx.y));
        }
      }
    }
  }
}

template <typename Kernel>
cudaError_t allow_shared(Kernel* kernel, size_t bytes) {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
}

template <WeightType type>
cudaError_t few_rows(const MatmulArgs& args, const LaunchContext& context) {
  const int32_t num_tiles = args.matrix.padded_rows / kTileRows;
  const int32_t tiles_of_block = num_tiles >= 256 ? 2 : 1;
  const int32_t warps = kWarps * tiles_of_block;
  const size_t shared =
      static_cast<size_t>(warps * kFewStages<type> * (WeightStream<type>::kStageBytes + kFewActivationBytes));
  if (const cudaError_t error = allow_shared(few_rows_kernel<type>, shared); error != cudaSuccess) return error;
  return launch(few_rows_kernel<type>,
                {.grid = dim3(static_cast<uint32_t>(num_tiles / tiles_of_block)),
                 .block = dim3(static_cast<uint32_t>(32 * warps)),
                 .shared_bytes = shared},
                context, args);
}

template <WeightType type, int32_t row_tiles, int32_t token_tiles, int32_t terms>
cudaError_t many_rows(const MatmulArgs& args, int32_t num_slices, const LaunchContext& context) {
  using Shape = ManyShape<type, row_tiles, token_tiles, terms>;
  const auto kernel = many_rows_kernel<type, row_tiles, token_tiles, terms>;
  if (const cudaError_t error = allow_shared(kernel, Shape::kSharedBytes); error != cudaSuccess) return error;
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
cudaError_t many_rows(const MatmulArgs& args, GeneratedPlan plan, const LaunchContext& context) {
  if (args.num_rows <= 8) return many_rows<type, 1, 1, 2>(args, kNumSlices, context);
  if (args.num_rows <= 16) return many_rows<type, 1, 2, 2>(args, kNumSlices, context);
  if (args.num_rows <= 32) {
    return plan.row_tiles == 1 ? many_rows<type, 1, 4, 2>(args, kNumSlices, context)
                               : many_rows<type, 2, 4, 2>(args, kNumSlices, context);
  }
  return plan.row_tiles == 1 ? many_rows<type, 1, 8, 2>(args, kNumSlices, context)
                             : many_rows<type, 2, 8, 2>(args, kNumSlices, context);
}

}  // namespace

GeneratedPlan plan_generated_matmul(const DeviceMatrix& matrix, int32_t num_rows, int32_t num_sms) {
  const int32_t blocks = matrix.padded_rows / (kTileRows * kManyWarps * 2) * kNumSlices;
  return {.num_partials = num_rows <= kFewRows ? 1 : kNumSlices, .row_tiles = blocks < num_sms ? 1 : 2};
}

cudaError_t generated_matmul(const MatmulArgs& args, GeneratedPlan plan, const LaunchContext& context) {
  const bool few = args.num_rows <= kFewRows;
  if (args.swiglu && !few) return cudaErrorInvalidValue;
  switch (args.matrix.type) {
    case WeightType::kBf16:
      return few ? few_rows<WeightType::kBf16>(args, context) : many_rows<WeightType::kBf16>(args, plan, context);
    case WeightType::kQ8_0:
      return few ? few_rows<WeightType::kQ8_0>(args, context) : many_rows<WeightType::kQ8_0>(args, plan, context);
    case WeightType::kAffine4Gs32:
      return few ? few_rows<WeightType::kAffine4Gs32>(args, context)
                 : many_rows<WeightType::kAffine4Gs32>(args, plan, context);
  }
  return cudaErrorInvalidValue;
}

cudaError_t prompt_matmul_portable(const MatmulArgs& args, const LaunchContext& context) {
  if (args.matrix.type != WeightType::kBf16) return cudaErrorInvalidValue;
  return many_rows<WeightType::kBf16, 2, 8, 1>(args, 1, context);
}

}  // namespace kipp::cuda
