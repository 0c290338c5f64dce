// Products of generated rows of FP16 tiles on Hopper, bound by reading the weights. The blocks of a cluster share 64 or
// 128 weight rows, each with one slice of the columns, and add their sums up through each other's shared memory. The
// two terms of a row are columns of their own to the matrix unit, whose result for a column depends on nothing else.
#include <algorithm>

#include "backend/cuda/kernels/generated_matmul_variants.h"
#include "backend/cuda/kernels/hopper.cuh"
#include "backend/cuda/kernels/matmul_epilogue.cuh"
#include "backend/cuda/kernels/tensor_core.cuh"
#include "backend/cuda/kernels/wgmma.cuh"

namespace kipp::cuda {
namespace {

constexpr int32_t kGroupRows = 64;  // weight rows of a warpgroup
constexpr uint32_t kBlocks = kNumSlices;
// With this much two blocks fit on a multiprocessor: the next product's weights arrive while this one's sums leave.
constexpr int32_t kSharedOfTwo = 104 * 1024;
constexpr int32_t kSharedOfOne = 224 * 1024;

// tokens: 8, 16, 32 or 64; groups: warpgroups that multiply.
template <int32_t tokens, int32_t groups>
struct Shape {
  static constexpr int32_t kBlocksPerSm = tokens <= 16 ? 2 : 1;
  static constexpr int32_t kWarps = 4 * groups;  // that multiply
  static constexpr int32_t kThreads = 32 * kWarps + 32;
  static constexpr int32_t kRowTiles = 4 * groups;
  static constexpr int32_t kWeightBytes = kRowTiles * kFp16TileBytes;
  static constexpr int32_t kTermBytes = tokens * kTileColumns * 2;
  static constexpr int32_t kStageBytes = kWeightBytes + 2 * kTermBytes;
  static constexpr int32_t kFragments = tokens / 8;  // of 16 weight rows: a float4 of each lane
  static constexpr int32_t kSumBytes = kNumSlices * groups * kFragments * 32 * 16;
  static constexpr int32_t kStages = ((kBlocksPerSm == 2 ? kSharedOfTwo : kSharedOfOne) - 2 * kSumBytes) / kStageBytes;
  static constexpr int32_t kSharedBytes = kStages * kStageBytes + 2 * kSumBytes + 1024;  // 1,024 to align
};

// What a launch consists of: units of `groups` · 64 weight rows and `tokens` rows. A cluster does every
// num_clusters'th.
struct Work {
  int32_t num_k;           // tiles of 64 columns of a slice
  int32_t num_row_groups;  // of x
  int32_t num_units;
  int32_t prefetched_stages;
  bool late_start;
};

template <int32_t stages>
struct Barriers {
  Barrier full[stages];
  Barrier empty[stages];
  // Of the sums of every other unit: this block has all slices' of its part; every block of the cluster has read its
  // own.
  Barrier sums_full[2];
  Barrier sums_empty[2];
};

// The terms of x, in boxes of `tokens` rows.
struct Maps {
  CUtensorMap high, low;
};

// Walks the stages of all units of this block, round and round through the ring.
template <int32_t stages>
struct Position {
  int32_t unit = static_cast<int32_t>(blockIdx.x / kBlocks);
  int32_t k = 0;
  int32_t stage = 0;
  uint32_t parity = 0;

  __device__ void advance(const Work& work) {
    if (++k == work.num_k) {
      k = 0;
      unit += static_cast<int32_t>(gridDim.x / kBlocks);
    }
    if (++stage == stages) {
      stage = 0;
      parity ^= 1U;
    }
  }
};

// The warp that copies: weights by lanes that take a tile of 16 rows each; of the activations one lane the high terms
// of `tokens` rows, one the low terms, which lie behind them.
template <int32_t tokens, typename S>
struct Copier {
  const MatmulArgs& args;
  const Maps& maps;
  const Work& work;
  std::byte* stages;
  Barriers<S::kStages>& barriers;
  int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  Position<S::kStages> at{};

  __device__ int32_t column_tile(const Position<S::kStages>& p) const {
    return static_cast<int32_t>(blockIdx.x % kBlocks) * work.num_k + p.k;
  }
  __device__ const std::byte* tile(const Position<S::kStages>& p) const {
    const int64_t row_tile = int64_t{p.unit / work.num_row_groups} * S::kRowTiles + lane;
    return args.matrix.tiles + (row_tile * kNumSlices * work.num_k + column_tile(p)) * kFp16TileBytes;
  }

  __device__ void copy_weights(const Position<S::kStages>& p) {
    Barrier& full = barriers.full[p.stage];
    if (lane == 0) full.arrive_and_expect(S::kWeightBytes);
    __syncwarp();
    if (lane < S::kRowTiles) {
      copy_bulk(shared_address(stages + p.stage * S::kStageBytes + lane * kFp16TileBytes), tile(p), kFp16TileBytes,
                full);
    }
  }
  __device__ void copy_activations(const Position<S::kStages>& p) {
    Barrier& full = barriers.full[p.stage];
    if (lane == 0) full.arrive_and_expect(2 * S::kTermBytes);
    __syncwarp();
    if (lane < 2) {
      copy_box(shared_address(stages + p.stage * S::kStageBytes + S::kWeightBytes + lane * S::kTermBytes),
               lane == 0 ? maps.high : maps.low, column_tile(p) * kTileColumns, p.unit % work.num_row_groups * tokens,
               full);
    }
  }

  // What need not wait for the previous kernel: it fills the ring, and has the next stages brought nearer.
  __device__ void begin() {
    if (lane < 2) prefetch_map(lane == 0 ? maps.high : maps.low);
    for (int32_t s = 0; s < S::kStages && at.unit < work.num_units; ++s, at.advance(work)) copy_weights(at);
    Position<S::kStages> ahead = at;
    for (int32_t s = 0; s < work.prefetched_stages && ahead.unit < work.num_units; ++s, ahead.advance(work)) {
      if (lane < S::kRowTiles) prefetch_bulk(tile(ahead), kFp16TileBytes);
    }
  }

  __device__ void finish() {
    Position<S::kStages> begun;
    for (int32_t s = 0; s < S::kStages && begun.unit < work.num_units; ++s, begun.advance(work))
      copy_activations(begun);
    for (; at.unit < work.num_units; at.advance(work)) {
      barriers.empty[at.stage].wait(at.parity ^ 1U);
      copy_weights(at);
      copy_activations(at);
    }
  }
};

// This block's slice of one unit: 64 weight rows of this warpgroup, both terms.
template <int32_t tokens, typename S>
__device__ void multiply_slice(float (&d)[tokens], const Work& work, const std::byte* stages,
                               Barriers<S::kStages>& barriers, Position<S::kStages>& at) {
  const uint32_t group = threadIdx.x / 128;
  const bool releases = threadIdx.x % 32 == 0;
  int32_t previous = -1;
  for (int32_t k = 0; k < work.num_k; ++k, at.advance(work)) {
    barriers.full[at.stage].wait(at.parity);
    const uint32_t base = shared_address(stages + at.stage * S::kStageBytes);
    const uint64_t a = swizzled_operand(base + group * 4 * kFp16TileBytes);
    const uint64_t b = swizzled_operand(base + S::kWeightBytes);
    wgmma_fence();
#pragma unroll
    for (uint64_t step = 0; step < 4; ++step) {  // 16 columns: 32 bytes on
      Wgmma<2 * tokens>::multiply(d, a + step * 2, b + step * 2);
    }
    wgmma_commit();
    wgmma_wait<1>();
    if (previous >= 0 && releases) barriers.empty[previous].arrive();
    previous = at.stage;
  }
  wgmma_wait<0>();
  if (releases) barriers.empty[previous].arrive();
}

// sums: [slice][group][fragment][lane] of a float4. Warp w of each warpgroup holds the tile of 16 rows that block w of
// the cluster finishes.
template <int32_t tokens, typename S>
__device__ void send_sums(const float (&d)[tokens], float4* sums, Barrier& full) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / 32;
  const auto slice = static_cast<int32_t>(rank_in_cluster());
  const auto to = static_cast<uint32_t>(warp % 4);
  float4* first = sums + (slice * (S::kWarps / 4) + warp / 4) * S::kFragments * 32 + lane;
#pragma unroll
  for (int32_t n = 0; n < S::kFragments; ++n) {
    const float* high = d + 4 * n;
    const float* low = high + tokens / 2;
    store_to_block(shared_address(first + n * 32), to,
                   {high[0] + low[0], high[1] + low[1], high[2] + low[2], high[3] + low[3]});
  }
  __syncwarp();
  if (lane == 0) full.arrive_at(to);
}

template <int32_t tokens, typename S>
__device__ void store_sums(const MatmulArgs& args, const Work& work, const float4* sums, int32_t unit) {
  constexpr int32_t kSliceStride = S::kSumBytes / kNumSlices / 16;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const auto rank = static_cast<int32_t>(rank_in_cluster());
  for (int32_t i = static_cast<int32_t>(threadIdx.x) / 32; i < S::kWarps / 4 * S::kFragments; i += S::kWarps) {
    const int32_t token = unit % work.num_row_groups * tokens + i % S::kFragments * 8 + lane % 4 * 2;
    if (token >= args.num_rows) continue;
    float4 total = sums[i * 32 + lane];
#pragma unroll
    for (int32_t slice = 1; slice < kNumSlices; ++slice) {
      const float4 next = sums[slice * kSliceStride + i * 32 + lane];
      total = {total.x + next.x, total.y + next.y, total.z + next.z, total.w + next.w};
    }
    const int32_t row_tile = unit / work.num_row_groups * S::kRowTiles + i / S::kFragments * 4 + rank;
    store_rows(args, token, row_tile, lane / 4, total.x, total.z);
    if (token + 1 < args.num_rows) store_rows(args, token + 1, row_tile, lane / 4, total.y, total.w);
  }
}

// Sums of a unit are on their way through the cluster while the next unit is multiplied.
template <int32_t tokens, typename S>
__device__ void multiply(const MatmulArgs& args, const Work& work, const std::byte* stages, float4* sums,
                         Barriers<S::kStages>& barriers) {
  const auto clusters = static_cast<int32_t>(gridDim.x / kBlocks);
  const auto first_unit = static_cast<int32_t>(blockIdx.x / kBlocks);
  const int32_t num_rounds = (work.num_units - first_unit + clusters - 1) / clusters;
  Position<S::kStages> at;
  for (int32_t round = 0; round <= num_rounds; ++round) {
    if (round < num_rounds) {
      float d[tokens] = {};
      multiply_slice<tokens, S>(d, work, stages, barriers, at);
      barriers.sums_empty[round % 2].wait_for_cluster(round / 2 % 2 == 0 ? 1 : 0);
      send_sums<tokens, S>(d, sums + round % 2 * (S::kSumBytes / 16), barriers.sums_full[round % 2]);
    }
    if (round == 0) continue;
    const int32_t done = round - 1;
    barriers.sums_full[done % 2].wait_for_cluster(done / 2 % 2 == 0 ? 0 : 1);
    store_sums<tokens, S>(args, work, sums + done % 2 * (S::kSumBytes / 16), first_unit + done * clusters);
    __syncwarp();
    // Only who has yet to send to that buffer is sure to be there still.
    if (done + 2 < num_rounds && threadIdx.x % 32 < kBlocks) barriers.sums_empty[done % 2].arrive_at(threadIdx.x % 32);
  }
}

template <int32_t tokens, int32_t groups>
__global__ void __launch_bounds__(Shape<tokens, groups>::kThreads, Shape<tokens, groups>::kBlocksPerSm)
    generated_matmul_kernel(const __grid_constant__ MatmulArgs args, const __grid_constant__ Maps maps,
                            const __grid_constant__ Work work) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using S = Shape<tokens, groups>;
  extern __shared__ std::byte unaligned[];
  __shared__ Barriers<S::kStages> barriers;
  auto* stages = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(unaligned) + 1023) / 1024 * 1024);
  if (threadIdx.x == 0) {
    for (int32_t i = 0; i < S::kStages; ++i) {
      barriers.full[i].init(2);  // weights, activations
      barriers.empty[i].init(S::kWarps);
    }
    for (int32_t i = 0; i < 2; ++i) {
      barriers.sums_full[i].init(S::kWarps);  // of each block one warp a warpgroup: kBlocks · kWarps / 4
      barriers.sums_empty[i].init(kBlocks * S::kWarps);
    }
    fence_barrier_init();
  }
  __syncthreads();
  cluster_arrive();
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / 32;
  Copier<tokens, S> copier{args, maps, work, stages, barriers};
  if (warp == S::kWarps) copier.begin();
  cluster_wait();
  if (warp == S::kWarps && !work.late_start) start_next();
  wait_for_previous();
  if (warp == S::kWarps) {
    copier.finish();
    start_next();
  } else {
    multiply<tokens, S>(args, work, stages, reinterpret_cast<float4*>(stages + S::kStages * S::kStageBytes), barriers);
  }
#endif
}

template <int32_t tokens, int32_t groups>
cudaError_t run(const MatmulArgs& args, const GeneratedPlan& plan, const LaunchContext& context) {
  using S = Shape<tokens, groups>;
  const auto kernel = generated_matmul_kernel<tokens, groups>;
  const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::kSharedBytes);
  if (error != cudaSuccess) return error;
  Maps maps;
  for (const bool low : {false, true}) {
    const CUresult made = make_activation_map(low ? maps.low : maps.high, low ? args.x.low : args.x.high, args.num_rows,
                                              args.x.stride, tokens);
    if (made != CUDA_SUCCESS) return cudaErrorNotSupported;
  }
  Work work{.num_k = args.matrix.padded_columns / kPaddedColumns,
            .num_row_groups = (args.num_rows + tokens - 1) / tokens,
            .num_units = 0,
            .prefetched_stages = plan.prefetched_stages,
            .late_start = plan.late_start};
  work.num_units = args.matrix.padded_rows / (kGroupRows * groups) * work.num_row_groups;
  return launch(kernel,
                {.grid = dim3(static_cast<uint32_t>(std::min(plan.num_clusters, work.num_units)) * kBlocks),
                 .block = dim3(S::kThreads),
                 .shared_bytes = S::kSharedBytes,
                 .cluster = kBlocks},
                context, args, maps, work);
}

}  // namespace

// Few rows: one block for each multiprocessor, so that the next product's have room beside them; but where two a
// multiprocessor save a second round, two.
int32_t plan_wgmma_clusters(const DeviceMatrix& matrix, int32_t num_rows, int32_t num_sms) {
  const int32_t one = std::max(1, num_sms / static_cast<int32_t>(kBlocks));
  const int32_t units = matrix.padded_rows / kGroupRows;
  return num_rows <= 16 && units <= 2 * one ? units : one;
}

cudaError_t generated_matmul_wgmma(const MatmulArgs& args, const GeneratedPlan& plan, const LaunchContext& context) {
  if (args.matrix.type != WeightType::kBf16) return cudaErrorInvalidValue;
  if (args.num_rows <= 8) return run<8, 1>(args, plan, context);
  if (args.num_rows <= 16) return run<16, 1>(args, plan, context);
  if (args.num_rows <= 32) return run<32, 2>(args, plan, context);
  return run<64, 2>(args, plan, context);
}

}  // namespace kipp::cuda
