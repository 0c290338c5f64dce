// Products of up to 8 generated rows where there is a copy engine, bound by reading the weights.
// Four warps share 16 weight rows, one slice of the columns each. A warp has a ring of its own that the copy engine
// fills far ahead, across the ends of tiles; the activations lie in shared memory from the kernel's beginning to its
// end, and of one row or two this kernel also does the norm that makes them.
#include <algorithm>

#include "backend/cuda/kernels/generated_matmul_variants.h"
#include "backend/cuda/kernels/matmul_epilogue.cuh"
#include "backend/cuda/kernels/stream_block.cuh"

namespace kipp::cuda {
namespace {

constexpr int32_t kMostTokens = 8;
constexpr int32_t kSharedOfSm = 227 * 1024;
constexpr int32_t kReservedOfBlock = 10 * 1024;  // of its share: the kernel's fixed arrays, and what the system takes
[[maybe_unused]] constexpr int32_t kOfSystem = 1024;
[[maybe_unused]] constexpr int32_t kOfNorm = 2 * 64;  // normalise_rows()
constexpr int32_t kMostBlocksOfSm = 3;
constexpr int32_t kFewestStages = 2;
constexpr int32_t kMostActivationBytes = 160 * 1024;

// Free functions, not members: where the kernel is empty (before Hopper) nvcc would warn of members that nobody calls.
template <WeightType type>
__device__ void add_tile(TileSums<type, true>& sum, const WeightFragment (&w)[2], const LaneActivations<true>& x,
                         int32_t tile) {
  uint4 words[2];
  float x_sum[2] = {};
#pragma unroll
  for (int32_t i = 0; i < 2; ++i) {
    words[i] = *reinterpret_cast<const uint4*>(x.first + (2 * tile + i) * (kGroupColumns * 2));
    if constexpr (type == WeightType::kAffine4Gs32) x_sum[i] = x.sums[(2 * tile + i) * x.sum_stride];
  }
  multiply_tile<type>(sum, w, words, x_sum);
}
template <WeightType type>
__device__ void add_tile(TileSums<type, false>& sum, const WeightFragment (&w)[2], const LaneActivations<false>& x,
                         int32_t tile) {
  ActivationFragment terms[2];
  float2 x_sum[2] = {};
#pragma unroll
  for (int32_t i = 0; i < 2; ++i) {
    const std::byte* from = x.first + (2 * tile + i) * (kGroupColumns * 2);
    terms[i] = {*reinterpret_cast<const uint4*>(from), *reinterpret_cast<const uint4*>(from + x.term_bytes)};
    if constexpr (type == WeightType::kAffine4Gs32) {
      x_sum[i] = *reinterpret_cast<const float2*>(x.sums + (2 * tile + i) * x.sum_stride);
    }
  }
  multiply_tile<type>(sum, w, terms, x_sum);
}

// What a lane needs of a group of 32 columns of a tile. scales: those of this lane's rows.
template <WeightType type>
__device__ WeightFragment fragment_of(const std::byte* tile, const std::byte* scales, int32_t group) {
  if constexpr (type == WeightType::kBf16) {
    const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
    const int32_t row = row_of_lane(lane / 4);
    return fp16_fragment(tile + row * 128 + ((lane % 4 + group * 4) ^ row) * 16, 1024);
  } else {
    return quantized_fragment<type>(tile, scales, group);
  }
}

// `count` tiles of a stage. first: which along the slice.
template <WeightType type, bool paired, int32_t count>
__device__ void multiply_tiles(TileSums<type, paired>& sum, const std::byte* weights, const std::byte* scales,
                               const LaneActivations<paired>& x, int32_t first) {
#pragma unroll
  for (int32_t i = 0; i < count; ++i) {
    const std::byte* tile = weights + i * tile_bytes(type);
    const std::byte* scales_of_tile = scales + i * tile_scale_bytes(type);
    const WeightFragment w[2] = {fragment_of<type>(tile, scales_of_tile, 0),
                                 fragment_of<type>(tile, scales_of_tile, 1)};
    add_tile<type>(sum, w, x, first + i);
  }
}

// A warp's slice of one tile of rows. A whole stage's instructions are one piece, so that its loads do not wait for its
// products.
template <WeightType type, bool paired>
__device__ void multiply_slice(TileSums<type, paired>& sum, WeightRing<type>& ring, int32_t& stage, uint32_t& parity,
                               const LaneActivations<paired>& x) {
  using S = StreamStage<type>;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  for (int32_t k = 0; k < ring.num_k; k += S::kTiles) {
    ring.full[stage].wait(parity);
    const std::byte* weights = ring.ring + stage * S::kBytes;
    const std::byte* scales = weights + S::kTiles * tile_bytes(type) + lane / 4 * (tile_scale_bytes(type) / 8);
    const int32_t count = min(S::kTiles, ring.num_k - k);
    if (count == S::kTiles) {
      multiply_tiles<type, paired, S::kTiles>(sum, weights, scales, x, k);
    } else {
      for (int32_t i = 0; i < count; ++i) {
        multiply_tiles<type, paired, 1>(sum, weights + i * tile_bytes(type), scales + i * tile_scale_bytes(type), x,
                                        k + i);
      }
    }
    __syncwarp();
    if (lane == 0) ring.request();
    if (++stage == ring.stages) {
      stage = 0;
      parity ^= 1U;
    }
  }
}

// A lane's sums of a tile of rows, as TileSums has them.
template <bool paired>
using LaneSums = float[paired ? 2 : 4];

// sums: [slice][lane].
template <WeightType type, bool paired>
__device__ void store_tile(const MatmulArgs& args, const LaneSums<paired>* sums, int32_t tile) {
  constexpr int32_t kTokens = paired ? 1 : 2;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
#pragma unroll
  for (int32_t i = 0; i < kTokens; ++i) {
    const int32_t token = lane % 4 * kTokens + i;
    if (token >= args.num_rows) return;
    float rows[2] = {sums[lane][i], sums[lane][kTokens + i]};
#pragma unroll
    for (int32_t slice = 1; slice < kNumSlices; ++slice) {
      rows[0] += sums[slice * 32 + lane][i];
      rows[1] += sums[slice * 32 + lane][kTokens + i];
    }
    const int32_t row = type == WeightType::kBf16 ? row_of_lane(lane / 4) : lane / 4;
    store_rows(args, token, tile, row, rows[0], rows[1]);
  }
}

template <WeightType type, bool paired>
__global__ void __launch_bounds__(kStreamThreads, kMostBlocksOfSm + 1)  // registers for one of the next kernel
    stream_kernel(const __grid_constant__ MatmulArgs args, const __grid_constant__ StreamLayout layout) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ Barrier full[kNumSlices][kMostStreamStages];
  __shared__ __align__(16) LaneSums<paired> sums[kNumSlices][kStreamThreads];
  static_assert(sizeof(full) + sizeof(sums) + kOfSystem + kOfNorm <= kReservedOfBlock);
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / 32;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const int32_t num_tiles = args.matrix.padded_rows / kTileRows;
  WeightRing<type> ring{.matrix = args.matrix,
                        .ring = shared + layout.rings_at + warp * layout.stages * StreamStage<type>::kBytes,
                        .full = full[warp],
                        .stages = layout.stages,
                        .num_k = args.matrix.padded_columns / kPaddedColumns,
                        .slice = warp};
  if (lane == 0) {
    for (int32_t s = 0; s < layout.stages; ++s) ring.full[s].init(1);
    fence_barrier_init();
    for (int32_t s = 0; s < layout.stages; ++s) ring.request();
  }
  __syncwarp();
  start_next();
  load_activations<type, paired>(args, layout, shared);
  const LaneActivations<paired> x(args, layout, shared, warp);
  int32_t stage = 0;
  uint32_t parity = 0;
  int32_t turn = 0;  // whose: the warps store tiles by turns, and only that one waits for the others' sums
  for (int32_t tile = static_cast<int32_t>(blockIdx.x); tile < num_tiles; tile += static_cast<int32_t>(gridDim.x)) {
    TileSums<type, paired> sum;
    multiply_slice<type, paired>(sum, ring, stage, parity, x);
    LaneSums<paired>* to = sums[turn];
#pragma unroll
    for (int32_t i = 0; i < (paired ? 2 : 4); ++i) to[threadIdx.x][i] = sum.total(i);
    // No warp can be four tiles ahead: it would have passed its own turn without the one that is behind.
    if (warp == turn) {
      wait_at_barrier(1 + turn, kStreamThreads);
      store_tile<type, paired>(args, to, tile);
    } else {
      pass_barrier(1 + turn, kStreamThreads);
    }
    turn = (turn + 1) % kNumSlices;
  }
#else
  __trap();  // chosen by the device, so code for it must be there: an error, not a result of nothing
#endif
}

template <WeightType type, bool paired>
cudaError_t run(const MatmulArgs& args, const StreamPlan& plan, const LaunchContext& context) {
  const StreamLayout layout = stream_layout<type>(args.matrix, args.num_rows, plan.stages);
  const auto kernel = stream_kernel<type, paired>;
  const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, layout.total);
  if (error != cudaSuccess) return error;
  return launch(kernel,
                {.grid = dim3(static_cast<uint32_t>(plan.num_blocks)),
                 .block = dim3(kStreamThreads),
                 .shared_bytes = static_cast<size_t>(layout.total)},
                context, args, layout);
}

template <WeightType type>
cudaError_t run(const MatmulArgs& args, const StreamPlan& plan, const LaunchContext& context) {
  return args.num_rows <= kMostPairedRows ? run<type, true>(args, plan, context)
                                          : run<type, false>(args, plan, context);
}

template <WeightType type>
int32_t stages_in(const DeviceMatrix& matrix, int32_t num_rows, int32_t bytes) {
  const int32_t rest = bytes - stream_layout<type>(matrix, num_rows, 0).total;
  return std::clamp(rest / (kNumSlices * StreamStage<type>::kBytes), 0, kMostStreamStages);
}

}  // namespace

int32_t most_stream_stages(const DeviceMatrix& matrix, int32_t num_rows, int32_t blocks_of_sm) {
  const int32_t share = kSharedOfSm / blocks_of_sm - kReservedOfBlock;
  switch (matrix.type) {
    case WeightType::kBf16: return stages_in<WeightType::kBf16>(matrix, num_rows, share);
    case WeightType::kQ8_0: return stages_in<WeightType::kQ8_0>(matrix, num_rows, share);
    case WeightType::kAffine4Gs32: return stages_in<WeightType::kAffine4Gs32>(matrix, num_rows, share);
  }
  return 0;
}

// Rings as deep as there is room for: then no more blocks than wanted find room on a multiprocessor, neither this
// kernel's nor the next one's, and they lie evenly (decision 0017).
StreamPlan plan_stream(const DeviceMatrix& matrix, int32_t num_rows, int32_t num_sms) {
  if (num_rows > kMostTokens || int64_t{4} * num_rows * matrix.padded_columns > kMostActivationBytes) return {};
  const int32_t tiles = matrix.padded_rows / kTileRows;
  const int32_t most = matrix.type == WeightType::kBf16 ? 2 : kMostBlocksOfSm;
  int32_t share = std::clamp((tiles + num_sms - 1) / num_sms, 2, most);
  while (share > 1 && most_stream_stages(matrix, num_rows, share) < kFewestStages) --share;
  const int32_t stages = most_stream_stages(matrix, num_rows, share);
  if (stages < kFewestStages) return {};
  if (tiles <= share * num_sms) return {tiles, stages};
  // One block fewer on each, if that leaves fewer of them without a tile in the last round.
  const auto rounded = [&](int32_t blocks) { return (tiles + blocks - 1) / blocks * blocks; };
  const int32_t fewer = std::max(1, share - 1) * num_sms;
  return {rounded(fewer) < rounded(share * num_sms) ? fewer : share * num_sms, stages};
}

cudaError_t generated_matmul_stream(const MatmulArgs& args, const StreamPlan& plan, const LaunchContext& context) {
  const bool is_possible = args.num_rows >= 1 && args.num_rows <= kMostTokens && plan.num_blocks >= 1 &&
                           plan.stages >= 1 && plan.stages <= kMostStreamStages;
  if (!is_possible) return cudaErrorInvalidValue;
  switch (args.matrix.type) {
    case WeightType::kBf16: return run<WeightType::kBf16>(args, plan, context);
    case WeightType::kQ8_0: return run<WeightType::kQ8_0>(args, plan, context);
    case WeightType::kAffine4Gs32: return run<WeightType::kAffine4Gs32>(args, plan, context);
  }
  return cudaErrorInvalidValue;
}

}  // namespace kipp::cuda
