// A block of the cluster kernel (generated_matmul_cluster.cuh): its shape, its ring of stages in shared memory, and the
// thread that has the copy engine fill it.
#pragma once

#include <type_traits>

#include "backend/cuda/kernels/generated_matmul_cluster.h"
#include "backend/cuda/kernels/hopper.cuh"
#include "backend/cuda/kernels/tensor_core.cuh"

namespace kipp::cuda {

inline constexpr int32_t kFinishingWarps = 3;  // of a block, beside those that multiply and one that copies
inline constexpr int32_t kMostStages = 12;
inline constexpr int32_t kSharedOfSm = 228 * 1024;
inline constexpr int32_t kReservedOfBlock = 1024;  // of its share, by the system
inline constexpr int32_t kMostOfBlock = 227 * 1024;
inline constexpr int32_t kStageAlignment = 1024;  // what the activations' swizzle repeats after

// A unit is kRowTiles tiles of weight rows and kTokens tokens, divided among warp_rows × warps / warp_rows warps.
template <WeightType type, int32_t row_tiles, int32_t token_tiles, int32_t warp_rows, int32_t warps>
struct ClusterShape {
  static constexpr WeightType kType = type;
  static constexpr int32_t kWarps = warps;
  static constexpr int32_t kThreads = 32 * (warps + kFinishingWarps + 1);
  static constexpr int32_t kWarpRowTiles = row_tiles;
  static constexpr int32_t kWarpTokenTiles = token_tiles;
  static constexpr int32_t kWarpRows = warp_rows;
  static constexpr int32_t kRowTiles = row_tiles * warp_rows;
  static constexpr int32_t kTokenTiles = token_tiles * (warps / warp_rows);
  static constexpr int32_t kTokens = 8 * kTokenTiles;
  // Tiles of rows that a warp multiplies at a time: enough sums that do not wait for each other, as far as registers
  // go.
  static constexpr int32_t kBatch = token_tiles < 4 && type != WeightType::kAffine4Gs32 ? 2 : 1;
  static constexpr int32_t kBatches = (row_tiles + kBatch - 1) / kBatch;  // of a group of 32 columns
  static constexpr int32_t kSteps = 2 * kBatches;                         // of a stage, those of the first group first

  // A stage: high terms, low terms [token][64 columns]; weights, scales [row tile]; sums of groups of activations.
  static constexpr int32_t kTermBytes = kTokens * kTileColumns * 2;
  static constexpr int32_t kWeightsAt = 2 * kTermBytes;
  static constexpr int32_t kScalesAt = kWeightsAt + kRowTiles * tile_bytes(type);
  static constexpr int32_t kLoadedBytes = kScalesAt + kRowTiles * tile_scale_bytes(type);
  static constexpr int32_t kSumBytes = type == WeightType::kAffine4Gs32 ? 2 * kTokens * 4 : 0;
  static constexpr int32_t kStageBytes =
      (kLoadedBytes + kSumBytes + kStageAlignment - 1) / kStageAlignment * kStageAlignment;

  // Each of the four blocks finishes a quarter of the tokens: half a tile of them at least, which is half of a lane's
  // sums of a tile. An item is what a lane sends at a time: of one tile of rows, a tile of tokens or half of one.
  static constexpr int32_t kHalvesOfBlock = 2 * kTokenTiles / kNumSlices;
  static constexpr int32_t kHalvesOfItem = kHalvesOfBlock == 1 ? 1 : 2;
  static constexpr int32_t kItemsOfTile = kHalvesOfBlock / kHalvesOfItem;  // of rows
  static constexpr int32_t kItems = kRowTiles * kItemsOfTile;
  using Item = std::conditional_t<kHalvesOfItem == 1, float2, float4>;
  static constexpr int32_t kExchangeBytes = kNumSlices * kItems * 32 * static_cast<int32_t>(sizeof(Item));
  static constexpr int32_t kBlocksPerSm = cluster_blocks_per_sm(kTokens);
};

struct ClusterMaps {
  CUtensorMap weights, scales, high, low;
};

struct ClusterWork {
  int32_t num_k;  // tiles of 64 columns of a slice
  int32_t num_token_groups;
  int32_t num_units;  // of a cluster: each `mates` units of weight rows
  int32_t mates;
  int32_t stages;
  uint32_t zero;  // always 0, which the compiler must not know (see in_registers)
};

struct ClusterBarriers {
  Barrier full[kMostStages];
  Barrier summed[kMostStages];  // AFFINE4: the sums of groups of activations are there
  Barrier empty[kMostStages];
  Barrier sums_full;   // all slices' sums of this block's quarter are there
  Barrier sums_empty;  // all blocks have read theirs
};

// Walks the stages of all units of this block, round and round through the ring.
struct RingPosition {
  int32_t unit;
  int32_t k = 0;
  int32_t stage = 0;
  uint32_t parity = 0;

  __device__ bool done(const ClusterWork& work) const { return unit >= work.num_units; }
  __device__ void advance(const ClusterWork& work, int32_t num_clusters) {
    if (++k == work.num_k) {
      k = 0;
      unit += num_clusters;
    }
    if (++stage == work.stages) {
      stage = 0;
      parity ^= 1U;
    }
  }
};

// What a thread of a block works with.
template <typename S>
struct ClusterBlock {
  const MatmulArgs& args;
  const ClusterMaps& maps;
  const ClusterWork& work;
  std::byte* stages;
  typename S::Item* exchange;  // [slice][item][lane]
  ClusterBarriers& barriers;
  int32_t num_clusters;
  int32_t first_unit;
  int32_t slice, mate;

  __device__ int32_t first_tile(int32_t unit) const {
    return (unit / work.num_token_groups * work.mates + mate) * S::kRowTiles;
  }
  __device__ int32_t first_token(int32_t unit) const { return unit % work.num_token_groups * S::kTokens; }
  __device__ std::byte* stage(int32_t index) const { return stages + index * S::kStageBytes; }
  // Of block `index` of the four that share this block's units.
  __device__ uint32_t rank(int32_t index) const { return static_cast<uint32_t>(mate * kNumSlices + index); }
};

// Of a unit: which weight rows and tokens, found out once.
template <typename S>
struct CopyPosition {
  RingPosition ring;
  int32_t first_tile, first_token;

  __device__ explicit CopyPosition(const ClusterBlock<S>& block) : ring{block.first_unit} { place(block); }
  __device__ bool done(const ClusterBlock<S>& block) const { return ring.done(block.work); }
  __device__ void advance(const ClusterBlock<S>& block) {
    ring.advance(block.work, block.num_clusters);
    if (ring.k == 0) place(block);
  }

 private:
  __device__ void place(const ClusterBlock<S>& block) {
    first_tile = block.first_tile(ring.unit);
    first_token = block.first_token(ring.unit);
  }
};

// The thread that copies.
template <typename S>
struct ClusterCopier {
  const ClusterBlock<S>& block;
  CopyPosition<S> at;

  __device__ void copy_weights(const CopyPosition<S>& p) const {
    Barrier& full = block.barriers.full[p.ring.stage];
    const uint32_t to = shared_address(block.stage(p.ring.stage));
    const int32_t column = block.slice * block.work.num_k + p.ring.k;
    full.arrive_and_expect(S::kLoadedBytes);
    copy_records(to + S::kWeightsAt, block.maps.weights, column, p.first_tile, full);
    if constexpr (S::kType != WeightType::kBf16) {
      copy_records(to + S::kScalesAt, block.maps.scales, column, p.first_tile, full);
    }
  }
  __device__ void copy_activations(const CopyPosition<S>& p) const {
    Barrier& full = block.barriers.full[p.ring.stage];
    const uint32_t to = shared_address(block.stage(p.ring.stage));
    const int32_t column = (block.slice * block.work.num_k + p.ring.k) * kTileColumns;
    if (block.work.mates == 1) {
      copy_box(to, block.maps.high, column, p.first_token, full);
      copy_box(to + S::kTermBytes, block.maps.low, column, p.first_token, full);
      return;
    }
    const uint32_t blocks = (1U | 1U << kNumSlices) << block.slice;
    copy_box_to_blocks(to + static_cast<uint32_t>(block.mate * S::kTermBytes),
                       block.mate == 0 ? block.maps.high : block.maps.low, column, p.first_token, full, blocks);
  }

  // What need not wait for the previous kernel.
  __device__ void begin() {
    prefetch_map(block.maps.high);
    prefetch_map(block.maps.low);
    for (int32_t s = 0; s < block.work.stages && !at.done(block); ++s, at.advance(block)) copy_weights(at);
  }
  __device__ void finish() {
    CopyPosition<S> begun(block);
    for (int32_t s = 0; s < block.work.stages && !begun.done(block); ++s, begun.advance(block)) {
      copy_activations(begun);
    }
    for (; !at.done(block); at.advance(block)) {
      block.barriers.empty[at.ring.stage].wait(at.ring.parity ^ 1U);
      copy_weights(at);
      copy_activations(at);
    }
    // Another block must not arrive at the barriers of one that is gone.
    for (int32_t s = 0; s < block.work.stages; ++s, at.ring.advance(block.work, block.num_clusters)) {
      block.barriers.empty[at.ring.stage].wait(at.ring.parity ^ 1U);
    }
  }
};

}  // namespace kipp::cuda
