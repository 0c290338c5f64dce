// Products of 9 and more generated rows on Hopper. Four blocks of a cluster share a unit of weight rows, each with one
// slice of the columns, and add their sums up through each other's shared memory, in the slices' order. In a cluster of
// eight two such groups take different weight rows, and each fetches one term of the activations for both.
//
// A block has four warps that multiply, three that finish the unit before, and a thread that has the copy engine fill a
// ring of stages: 64 columns of activations and of weights. Warps multiply 16 × 8 tiles as every kernel of generated
// rows does, so the bits are the same; only which row of a tile of FP16 weights and which token of eight a lane holds
// is another, so that lanes meet in no bank of shared memory.
#pragma once

#include <algorithm>

#include "backend/cuda/kernels/cluster_multiply.cuh"
#include "backend/cuda/kernels/cluster_ring.cuh"
#include "backend/cuda/kernels/generated_matmul_cluster.h"
#include "backend/cuda/kernels/matmul_epilogue.cuh"
#include "backend/cuda/kernels/tensor_map.h"

namespace kipp::cuda {

// Adds an item's sums up, in the slices' order: d as a lane of the matrix unit holds it, or half of that.
template <typename S>
__device__ void add_slices(float (&d)[2 * S::kHalvesOfItem], const typename S::Item* first) {
#pragma unroll
  for (int32_t slice = 0; slice < kNumSlices; ++slice) {
    const typename S::Item item = first[slice * S::kItems * 32];
#pragma unroll
    for (int32_t i = 0; i < 2 * S::kHalvesOfItem; ++i) {
      const float next = reinterpret_cast<const float*>(&item)[i];
      d[i] = slice == 0 ? next : d[i] + next;
    }
  }
}

// A finishing warp's share of the block's quarter of a unit.
template <typename S>
__device__ void store_unit(const ClusterBlock<S>& block, int32_t unit, uint32_t parity) {
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / 32 - S::kWarps;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const int32_t row = S::kType == WeightType::kBf16 ? row_of_lane(lane / 4) : lane / 4;
  const int32_t first_tile = block.first_tile(unit);
  const int32_t first_token = block.first_token(unit) + block.slice * S::kHalvesOfBlock * 4 + lane % 4;
  const bool is_last = unit + block.num_clusters >= block.work.num_units;
  block.barriers.sums_full.wait_for_cluster(parity);
  if (!is_last && warp == 0 && lane == 0) block.barriers.sums_full.arrive_and_expect(S::kExchangeBytes);
#pragma unroll 2
  for (int32_t item = warp; item < S::kItems; item += kFinishingWarps) {
    float d[2 * S::kHalvesOfItem];
    add_slices<S>(d, block.exchange + item * 32 + lane);
#pragma unroll
    for (int32_t half = 0; half < S::kHalvesOfItem; ++half) {
      const int32_t token = first_token + (item % S::kItemsOfTile * S::kHalvesOfItem + half) * 4;
      if (token >= block.args.num_rows) continue;
      store_rows(block.args, token, first_tile + item / S::kItemsOfTile, row, d[half], d[half + S::kHalvesOfItem]);
    }
  }
  __syncwarp();
  // After the last unit nobody waits for it, so the other block may be gone.
  if (!is_last && lane < kNumSlices) block.barriers.sums_empty.arrive_at(block.rank(lane));
}

// Sums of the activations of each token and group of a stage: [group][column of the token].
template <typename S>
__device__ void sum_activations(const ClusterBlock<S>& block, const RingPosition& at) {
  block.barriers.full[at.stage].wait(at.parity);
  std::byte* stage = block.stage(at.stage);
  // Which warp has most to do changes from stage to stage.
  const int32_t warp = (static_cast<int32_t>(threadIdx.x) / 32 - S::kWarps + at.k) % kFinishingWarps;
  for (int32_t i = 32 * warp + static_cast<int32_t>(threadIdx.x) % 32; i < 2 * S::kTokens; i += 32 * kFinishingWarps) {
    const int32_t token = i % S::kTokens;
    float part[4];
#pragma unroll
    for (int32_t t = 0; t < 4; ++t) {
      const std::byte* from = stage + token * 128 + ((i / S::kTokens * 4 + t) ^ (token % 8)) * 16;
      part[t] = sum_of_activations(
          {*reinterpret_cast<const uint4*>(from), *reinterpret_cast<const uint4*>(from + S::kTermBytes)});
    }
    const int32_t place = i - token % 8 + column_of_token(token % 8);
    reinterpret_cast<float*>(stage + S::kLoadedBytes)[place] = sum_of_group(part[0], part[1], part[2], part[3]);
  }
  __syncwarp();
  if (threadIdx.x % 32 == 0) block.barriers.summed[at.stage].arrive();
}

// The finishing warps. Where they sum activations, too, a unit is finished when they cannot be further ahead of those
// that multiply the next.
template <typename S>
__device__ void finish_units(const ClusterBlock<S>& block) {
  RingPosition at{block.first_unit};
  uint32_t parity = 0;
  const int32_t ahead = min(block.work.stages, block.work.num_k) - 1;
  for (int32_t unit = block.first_unit; unit < block.work.num_units; unit += block.num_clusters) {
    const bool is_first = unit == block.first_unit;
    if constexpr (S::kType == WeightType::kAffine4Gs32) {
      for (int32_t k = 0; k < block.work.num_k; ++k) {
        sum_activations(block, at);
        at.advance(block.work, block.num_clusters);
        if (k == ahead && !is_first) {
          store_unit(block, unit - block.num_clusters, parity);
          parity ^= 1U;
        }
      }
      if (unit + block.num_clusters < block.work.num_units) continue;
    }
    store_unit(block, unit, parity);
    parity ^= 1U;
  }
}

template <typename S>
__global__ void __launch_bounds__(S::kThreads, S::kBlocksPerSm)
    cluster_matmul_kernel(const __grid_constant__ MatmulArgs args, const __grid_constant__ ClusterMaps maps,
                          const __grid_constant__ ClusterWork work) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(kStageAlignment) std::byte stages[];
  if (shared_address(stages) % kStageAlignment != 0) __trap();
  std::byte* exchange = stages + work.stages * S::kStageBytes;
  auto& barriers = *reinterpret_cast<ClusterBarriers*>(exchange + S::kExchangeBytes);
  const int32_t cluster_size = kNumSlices * work.mates;
  const int32_t rank = static_cast<int32_t>(blockIdx.x) % cluster_size;
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / 32;
  const ClusterBlock<S> block{.args = args,
                              .maps = maps,
                              .work = work,
                              .stages = stages,
                              .exchange = reinterpret_cast<typename S::Item*>(exchange),
                              .barriers = barriers,
                              .num_clusters = static_cast<int32_t>(gridDim.x) / cluster_size,
                              .first_unit = static_cast<int32_t>(blockIdx.x) / cluster_size,
                              .slice = rank % kNumSlices,
                              .mate = rank / kNumSlices};
  const bool copies = threadIdx.x == S::kThreads - 32;
  ClusterCopier<S> copier{block, CopyPosition<S>(block)};
  if (copies) {
    for (int32_t s = 0; s < work.stages; ++s) {
      barriers.full[s].init(1);
      barriers.summed[s].init(kFinishingWarps);
      barriers.empty[s].init(static_cast<uint32_t>(S::kWarps * work.mates));
    }
    barriers.sums_full.init(1);
    barriers.sums_empty.init(kNumSlices * kFinishingWarps);
    fence_barrier_init();
    barriers.sums_full.arrive_and_expect(S::kExchangeBytes);
  }
  __syncwarp();
  cluster_arrive();
  start_next();
  if (copies) copier.begin();
  __syncwarp();
  cluster_wait();
  wait_for_previous();
  // A block waits for all that others write or arrive at in its shared memory, so none outlives another that needs it.
  if (copies) {
    copier.finish();
  } else if (warp < S::kWarps) {
    multiply_units(block);
  } else if (warp < S::kWarps + kFinishingWarps) {
    finish_units(block);
  }
#else
  __trap();  // chosen by the device, so code for it must be there: an error, not a result of nothing
#endif
}

template <typename S>
constexpr int32_t ring_stages() {
  const int32_t share = std::min(kSharedOfSm / S::kBlocksPerSm - kReservedOfBlock, kMostOfBlock);
  const int32_t rest = S::kExchangeBytes + static_cast<int32_t>(sizeof(ClusterBarriers));
  return std::min(kMostStages, (share - rest) / S::kStageBytes);
}

template <typename S>
LaunchShape launch_shape(const ClusterPlan& plan) {
  const int32_t shared =
      ring_stages<S>() * S::kStageBytes + S::kExchangeBytes + static_cast<int32_t>(sizeof(ClusterBarriers));
  const auto cluster = static_cast<uint32_t>(kNumSlices * plan.mates);
  return {.grid = dim3(static_cast<uint32_t>(plan.num_clusters) * cluster),
          .block = dim3(S::kThreads),
          .shared_bytes = static_cast<size_t>(shared),
          .cluster = cluster};
}

template <typename S>
CUresult make_maps(ClusterMaps& maps, const MatmulArgs& args) {
  const DeviceMatrix& m = args.matrix;
  const int32_t rows = m.padded_rows / kTileRows;
  const int32_t columns = m.padded_columns / kTileColumns;
  CUresult made = make_record_map(maps.weights, m.tiles, tile_bytes(S::kType), rows, columns, S::kRowTiles);
  if (made == CUDA_SUCCESS && S::kType != WeightType::kBf16) {
    made = make_record_map(maps.scales, m.scales, tile_scale_bytes(S::kType), rows, columns, S::kRowTiles);
  }
  if (made == CUDA_SUCCESS) made = make_row_map(maps.high, args.x.high, args.num_rows, args.x.stride, S::kTokens);
  if (made == CUDA_SUCCESS) made = make_row_map(maps.low, args.x.low, args.num_rows, args.x.stride, S::kTokens);
  return made;
}

template <typename S>
cudaError_t run_cluster(const MatmulArgs& args, const ClusterPlan& plan, const LaunchContext& context) {
  ClusterMaps maps{};
  if (make_maps<S>(maps, args) != CUDA_SUCCESS) return cudaErrorNotSupported;
  ClusterWork work{.num_k = args.matrix.padded_columns / kPaddedColumns,
                   .num_token_groups = (args.num_rows + S::kTokens - 1) / S::kTokens,
                   .num_units = 0,
                   .mates = plan.mates,
                   .stages = ring_stages<S>(),
                   .zero = 0};
  const int32_t rows = S::kRowTiles * plan.mates;
  work.num_units = (args.matrix.padded_rows / kTileRows + rows - 1) / rows * work.num_token_groups;
  if (work.stages < 2 || plan.mates < 1 || plan.mates > 2) return cudaErrorInvalidValue;
  ClusterPlan bounded = plan;
  bounded.num_clusters = std::min(plan.num_clusters, work.num_units);
  const LaunchShape shape = launch_shape<S>(bounded);
  const cudaError_t error = cudaFuncSetAttribute(cluster_matmul_kernel<S>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                 static_cast<int>(shape.shared_bytes));
  if (error != cudaSuccess) return error;
  return launch(cluster_matmul_kernel<S>, shape, context, args, maps, work);
}

template <typename S>
int32_t most_clusters_of(const ClusterPlan& plan) {
  ClusterPlan one = plan;
  one.num_clusters = 1;
  const LaunchShape shape = launch_shape<S>(one);
  if (ring_stages<S>() < 2 ||
      cudaFuncSetAttribute(cluster_matmul_kernel<S>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(shape.shared_bytes)) != cudaSuccess) {
    return 0;
  }
  return max_active_clusters(cluster_matmul_kernel<S>, shape);
}

template <WeightType type, int32_t tokens, int32_t row_tiles>
using ClusterShapeOf = ClusterShape<type, row_tiles, tokens / 8 / (kClusterWarps / cluster_warp_rows(tokens)),
                                    cluster_warp_rows(tokens), kClusterWarps>;

// visit(shape) of the plan's; `none` where there is no such kernel.
template <WeightType type, int32_t tokens = 16, int32_t row_tiles = 1, typename Visit, typename Result>
Result visit_shape(const ClusterPlan& plan, const Visit& visit, Result none) {
  if constexpr (tokens > 64) {
    return none;
  } else if constexpr (row_tiles > cluster_most_row_tiles(tokens)) {
    return visit_shape<type, 2 * tokens, 1>(plan, visit, none);
  } else {
    if (plan.tokens == tokens && plan.row_tiles == row_tiles) return visit(ClusterShapeOf<type, tokens, row_tiles>{});
    return visit_shape<type, tokens, row_tiles + 1>(plan, visit, none);
  }
}

template <WeightType type>
cudaError_t run_cluster_matmul(const MatmulArgs& args, const ClusterPlan& plan, const LaunchContext& context) {
  return visit_shape<type>(
      plan, [&]<typename S>(S) { return run_cluster<S>(args, plan, context); }, cudaErrorInvalidValue);
}

template <WeightType type>
int32_t most_clusters(const ClusterPlan& plan) {
  return visit_shape<type>(plan, [&]<typename S>(S) { return most_clusters_of<S>(plan); }, 0);
}

}  // namespace kipp::cuda
