// The warps of the cluster kernel (generated_matmul_cluster.cuh) that multiply.
#pragma once

#include <utility>

#include "backend/cuda/kernels/cluster_ring.cuh"

namespace kipp::cuda {

// Which column of a tile a token of eight is: lanes hold tokens in the order of row_of_lane(), too.
__device__ inline int32_t column_of_token(int32_t token) {
  return token % 4 * 2 + token / 4;
}

// What a multiplying warp's lane holds at a time of a stage: a group's activations, and a step's weights and the next
// one's.
template <typename S>
using StepActivations = ActivationFragment[S::kWarpTokenTiles];
template <typename S>
using StepWeights = PackedFragment<S::kType>[S::kBatch];

// A lane's places in a stage.
template <typename S>
struct LanePlaces {
  int32_t x, weights, scales, sums;

  __device__ LanePlaces() {
    const int32_t warp = static_cast<int32_t>(threadIdx.x) / 32;
    const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
    const int32_t first_row_tile = warp % S::kWarpRows * S::kWarpRowTiles;
    const int32_t first_token = warp / S::kWarpRows * S::kWarpTokenTiles * 8;
    const int32_t row = row_of_lane(lane / 4);
    const int32_t piece = row * 128 + (lane % 4 ^ row) * 16;
    x = first_token * 128 + piece;
    weights = S::kWeightsAt + first_row_tile * tile_bytes(S::kType) + (S::kType == WeightType::kBf16 ? piece : 0);
    scales = S::kScalesAt + first_row_tile * tile_scale_bytes(S::kType) + lane / 4 * (tile_scale_bytes(S::kType) / 8);
    sums = S::kLoadedBytes + (first_token + lane % 4 * 2) * 4;
  }
};

// One term of a step's activations.
template <typename S, bool high>
__device__ void load_term(StepActivations<S>& x, const std::byte* stage, const LanePlaces<S>& places, int32_t step) {
  const std::byte* from = stage + (places.x ^ step / S::kBatches * 64) + (high ? 0 : S::kTermBytes);
#pragma unroll
  for (int32_t n = 0; n < S::kWarpTokenTiles; ++n) {
    (high ? x[n].high : x[n].low) = *reinterpret_cast<const uint4*>(from + n * 1024);
  }
}

template <typename S>
__device__ void load_weights(StepWeights<S>& w, const std::byte* stage, const LanePlaces<S>& places, int32_t step) {
  const int32_t group = step / S::kBatches;
#pragma unroll
  for (int32_t b = 0; b < S::kBatch; ++b) {
    const int32_t r = step % S::kBatches * S::kBatch + b;
    if (r >= S::kWarpRowTiles) break;
    if constexpr (S::kType == WeightType::kBf16) {
      const std::byte* from = stage + (places.weights ^ group * 64) + r * kFp16TileBytes;
      w[b] = {*reinterpret_cast<const uint4*>(from), *reinterpret_cast<const uint4*>(from + 1024)};
    } else {
      w[b] = quantized_words<S::kType>(stage + places.weights + r * tile_bytes(S::kType),
                                       stage + places.scales + r * tile_scale_bytes(S::kType), group);
    }
  }
}

// The matrix unit takes four neighbouring registers, of which two came with another load. The compiler would move them
// for each instruction anew; a number that it computed it puts where it belongs, once.
[[maybe_unused]] __device__ inline void in_registers(WeightFragment& w, uint32_t zero) {
#pragma unroll
  for (int32_t i = 0; i < 4; ++i) {
    w.low_row[i] ^= zero;
    w.high_row[i] ^= zero;
  }
}

template <typename S>
constexpr int32_t first_row_of(int32_t step) {
  return step % S::kBatches * S::kBatch;
}
template <typename S>
constexpr int32_t rows_of(int32_t step) {
  const int32_t rest = S::kWarpRowTiles - first_row_of<S>(step);
  return rest < S::kBatch ? rest : S::kBatch;
}

// Products of one term of a batch of rows, which have yet to be scaled and added to the sums.
template <typename S>
using BatchParts = float[S::kBatch][S::kWarpTokenTiles][4];

// A warp's sums, as TileSums of `S::kType` has them for each tile.
template <typename S>
struct WarpSums {
  TileSums<S::kType, false> sum[S::kWarpRowTiles][S::kWarpTokenTiles];
  // The low terms of the step before, which are added behind the next step's first products so that no addition waits
  // for the matrix unit.
  BatchParts<S> pending = {};
  WeightFragment pending_weights[S::kBatch] = {};  // of these only scales and biases
  float2 pending_x_sum[S::kWarpTokenTiles] = {};
};

// Instructions that do not wait for each other take turns.
template <typename S, int32_t rows, bool high>
__device__ void multiply_term(BatchParts<S>& part, const WeightFragment (&w)[S::kBatch], const StepActivations<S>& x) {
#pragma unroll
  for (int32_t half = 0; half < 2; ++half) {
#pragma unroll
    for (int32_t b = 0; b < rows; ++b) {
#pragma unroll
      for (int32_t n = 0; n < S::kWarpTokenTiles; ++n) {
        const uint4& words = high ? x[n].high : x[n].low;
        if (half == 0) {
          begin_half(part[b][n], w[b], words);
        } else {
          add_half(part[b][n], w[b], words, half);
        }
      }
    }
  }
}

template <typename S, int32_t step, bool high>
__device__ void add_term(WarpSums<S>& sums, const BatchParts<S>& part, const WeightFragment (&w)[S::kBatch],
                         const float2 (&x_sum)[S::kWarpTokenTiles]) {
#pragma unroll
  for (int32_t b = 0; b < rows_of<S>(step); ++b) {
#pragma unroll
    for (int32_t n = 0; n < S::kWarpTokenTiles; ++n) {
      float(&to)[4] = sums.sum[first_row_of<S>(step) + b][n].sum;
      add_scaled(to, part[b][n], w[b].low_scale, w[b].high_scale);
      if constexpr (S::kType == WeightType::kAffine4Gs32 && !high) {
        add_scaled(to, {x_sum[n].x, x_sum[n].y, x_sum[n].x, x_sum[n].y}, w[b].low_bias, w[b].high_bias);
      }
    }
  }
}
template <typename S, int32_t step>
__device__ void add_pending(WarpSums<S>& sums) {
  add_term<S, step, false>(sums, sums.pending, sums.pending_weights, sums.pending_x_sum);
}

// What multiply_tile() does, of a step's tiles of rows and several of tokens. load(is_high): called as soon as that
// term of x is no longer needed.
template <typename S, int32_t step, typename Load>
__device__ void multiply_step(WarpSums<S>& sums, const StepWeights<S>& packed, const StepActivations<S>& x,
                              const float2 (&x_sum)[S::kWarpTokenTiles], uint32_t zero, const Load& load) {
  constexpr int32_t kRows = rows_of<S>(step);
  WeightFragment w[S::kBatch];
#pragma unroll
  for (int32_t b = 0; b < kRows; ++b) {
    w[b] = unpacked<S::kType>(packed[b]);
    if constexpr (S::kType == WeightType::kBf16) in_registers(w[b], zero);
  }
  if constexpr (S::kType == WeightType::kBf16) {
#pragma unroll
    for (int32_t term = 0; term < 2; ++term) {
#pragma unroll
      for (int32_t half = 0; half < 2; ++half) {
#pragma unroll
        for (int32_t b = 0; b < kRows; ++b) {
#pragma unroll
          for (int32_t n = 0; n < S::kWarpTokenTiles; ++n) {
            TileSums<S::kType, false>& to = sums.sum[first_row_of<S>(step) + b][n];
            add_half(term == 0 ? to.high : to.low, w[b], term == 0 ? x[n].high : x[n].low, half);
          }
        }
      }
      if (term == 0) {
        load(std::true_type{});
      } else {
        load(std::false_type{});
      }
    }
  } else {
    BatchParts<S> part;
    multiply_term<S, kRows, true>(part, w, x);
    load(std::true_type{});
    add_pending<S, (step + S::kSteps - 1) % S::kSteps>(sums);
    multiply_term<S, kRows, false>(sums.pending, w, x);
    load(std::false_type{});
    add_term<S, step, true>(sums, part, w, x_sum);
#pragma unroll
    for (int32_t b = 0; b < kRows; ++b) sums.pending_weights[b] = w[b];
#pragma unroll
    for (int32_t n = 0; n < S::kWarpTokenTiles; ++n) sums.pending_x_sum[n] = x_sum[n];
  }
}

template <typename S>
__device__ void wait_for_stage(const ClusterBlock<S>& block, const RingPosition& at) {
  block.barriers.full[at.stage].wait(at.parity);
  if constexpr (S::kType == WeightType::kAffine4Gs32) block.barriers.summed[at.stage].wait(at.parity);
}

// This warp will read nothing more of the stage. Who copies into it must know of all blocks that it copies to.
template <typename S>
__device__ void release_stage(const ClusterBlock<S>& block, int32_t stage) {
  __syncwarp();
  const auto lane = static_cast<int32_t>(threadIdx.x) % 32;
  if (lane < block.work.mates) {
    block.barriers.empty[stage].arrive_at(static_cast<uint32_t>(lane * kNumSlices + block.slice));
  }
}

// This warp's sums of the block's slice of one unit. Weights are loaded a step ahead, activations as soon as there is
// room, also from one stage to the next.
template <typename S>
__device__ void multiply_slice(WarpSums<S>& sums, const ClusterBlock<S>& block, const LanePlaces<S>& places,
                               RingPosition& at) {
  constexpr int32_t kLast = S::kSteps - 1;
  StepActivations<S> x;
  StepWeights<S> w[2];
  wait_for_stage(block, at);
  const std::byte* stage = block.stage(at.stage);
  load_weights<S>(w[0], stage, places, 0);
  load_term<S, true>(x, stage, places, 0);
  load_term<S, false>(x, stage, places, 0);
  for (int32_t k = 0; k < block.work.num_k; ++k) {
    const int32_t current = at.stage;
    const bool more = k + 1 < block.work.num_k;
    const std::byte* next = stage;
    at.advance(block.work, block.num_clusters);
    const auto step = [&]<int32_t i>() {
      float2 x_sum[S::kWarpTokenTiles] = {};
      if constexpr (S::kType == WeightType::kAffine4Gs32) {
#pragma unroll
        for (int32_t n = 0; n < S::kWarpTokenTiles; ++n) {
          x_sum[n] = *reinterpret_cast<const float2*>(stage + places.sums + (i / S::kBatches * S::kTokens + n * 8) * 4);
        }
      }
      if constexpr (i < kLast) {
        load_weights<S>(w[(i + 1) % 2], stage, places, i + 1);
      } else {
        release_stage(block, current);
        if (more) {
          wait_for_stage(block, at);
          next = block.stage(at.stage);
          load_weights<S>(w[(i + 1) % 2], next, places, 0);
        }
      }
      multiply_step<S, i>(sums, w[i % 2], x, x_sum, block.work.zero, [&]<bool high>(std::bool_constant<high>) {
        if constexpr (i < kLast && (i + 1) % S::kBatches == 0) load_term<S, high>(x, stage, places, i + 1);
        if constexpr (i == kLast) {
          if (more) load_term<S, high>(x, next, places, 0);
        }
      });
    };
    [&]<int32_t... i>(std::integer_sequence<int32_t, i...>) {
      (step.template operator()<i>(), ...);
    }(std::make_integer_sequence<int32_t, S::kSteps>{});
    stage = next;
  }
  if constexpr (S::kType != WeightType::kBf16) add_pending<S, kLast>(sums);
}

// Sums go to the blocks that finish them, each slice's to a place of its own.
template <typename S>
__device__ void send_sums(const WarpSums<S>& sums, const ClusterBlock<S>& block) {
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / 32;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const int32_t first_row_tile = warp % S::kWarpRows * S::kWarpRowTiles;
  const int32_t first_half = warp / S::kWarpRows * S::kWarpTokenTiles * 2;
#pragma unroll
  for (int32_t n = 0; n < 2 * S::kWarpTokenTiles; n += S::kHalvesOfItem) {
    const int32_t half = first_half + n;
    const uint32_t to = block.rank(half / S::kHalvesOfBlock);
    const int32_t first_item = first_row_tile * S::kItemsOfTile + half % S::kHalvesOfBlock / S::kHalvesOfItem;
    const uint32_t place = shared_address(block.exchange + (block.slice * S::kItems + first_item) * 32 + lane);
#pragma unroll
    for (int32_t r = 0; r < S::kWarpRowTiles; ++r) {
      const uint32_t at = place + static_cast<uint32_t>(r * S::kItemsOfTile * 32 * sizeof(typename S::Item));
      const TileSums<S::kType, false>& d = sums.sum[r][n / 2];
      if constexpr (S::kHalvesOfItem == 1) {
        store_to_block(at, to, float2{d.total(n % 2), d.total(n % 2 + 2)}, block.barriers.sums_full);
      } else {
        store_to_block(at, to, float4{d.total(0), d.total(1), d.total(2), d.total(3)}, block.barriers.sums_full);
      }
    }
  }
}

template <typename S>
__device__ void multiply_units(const ClusterBlock<S>& block) {
  const LanePlaces<S> places;
  RingPosition at{block.first_unit};
  uint32_t parity = 1;
  while (!at.done(block.work)) {
    WarpSums<S> sums;
    multiply_slice<S>(sums, block, places, at);
    block.barriers.sums_empty.wait(parity);
    parity ^= 1U;
    send_sums<S>(sums, block);
  }
}

}  // namespace kipp::cuda
