// The warps of the cluster kernel (generated_matmul_cluster.cuh) that multiply.
#pragma once

#include <utility>

#include "backend/cuda/kernels/cluster_ring.cuh"

namespace kipp::cuda {

// Which row of eight lanes 4g … 4g + 3 hold: neighbours g lie four rows apart, where the swizzle makes their pieces
// meet in no bank. It is also which token a column of a tile is.
__device__ inline int32_t row_of_lane(int32_t g) {
  return g / 2 + g % 2 * 4;
}
__device__ inline int32_t column_of_token(int32_t token) {
  return token % 4 * 2 + token / 4;
}

// What a multiplying warp's lane holds at a time of a stage: a group's activations and the next one's, a batch of rows'
// weights and the next one's.
template <typename S>
struct ClusterOperands {
  ActivationFragment x[2][S::kWarpTokenTiles];
  PackedFragment<S::kType> w[2][S::kBatch];
};

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

template <typename S>
__device__ void load_activations(ActivationFragment (&x)[S::kWarpTokenTiles], const std::byte* stage,
                                 const LanePlaces<S>& places, int32_t group) {
  const std::byte* from = stage + (places.x ^ group * 64);
#pragma unroll
  for (int32_t n = 0; n < S::kWarpTokenTiles; ++n) {
    x[n].high = *reinterpret_cast<const uint4*>(from + n * 1024);
    x[n].low = *reinterpret_cast<const uint4*>(from + n * 1024 + S::kTermBytes);
  }
}

// step: of a stage's batches, those of the first group first.
template <typename S>
__device__ void load_weights(PackedFragment<S::kType> (&w)[S::kBatch], const std::byte* stage,
                             const LanePlaces<S>& places, int32_t step) {
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

// AFFINE4 multiplies pieces 0 and 2 of a group together, and 1 and 3: the same for the activations' neighbours.
[[maybe_unused]] __device__ inline uint4 in_pairs(uint4 x, uint32_t zero) {
  return {x.x ^ zero, x.z ^ zero, x.y ^ zero, x.w ^ zero};
}

// What multiply_group() does, of `rows` tiles of weights and several of tokens, taking turns so that no instruction
// waits for the one before. first: of the warp's tiles of rows. AFFINE4: x in_pairs().
template <typename S, int32_t first, int32_t rows>
__device__ void multiply_batch(float (&sum)[S::kWarpRowTiles][S::kWarpTokenTiles][4],
                               const PackedFragment<S::kType> (&packed)[S::kBatch],
                               const ActivationFragment (&x)[S::kWarpTokenTiles],
                               const float2 (&x_sum)[S::kWarpTokenTiles], uint32_t zero) {
  constexpr bool kAffine = S::kType == WeightType::kAffine4Gs32;
  constexpr int32_t kTiles = S::kWarpTokenTiles;
  WeightFragment w[rows];
#pragma unroll
  for (int32_t b = 0; b < rows; ++b) {
    w[b] = unpacked<S::kType>(packed[b]);
    if constexpr (S::kType == WeightType::kBf16) in_registers(w[b], zero);
  }
  float part[2][rows][kTiles][4] = {};  // quantised; [1]: AFFINE4's odd pieces
#pragma unroll
  for (int32_t pair = 0; pair < 2; ++pair) {
#pragma unroll
    for (int32_t term = 0; term < 2; ++term) {
#pragma unroll
      for (int32_t b = 0; b < rows; ++b) {
#pragma unroll
        for (int32_t n = 0; n < kTiles; ++n) {
          const uint4& words = term == 0 ? x[n].high : x[n].low;
          const int32_t i = kAffine ? pair : 2 * pair;
          const int32_t j = kAffine ? pair + 2 : 2 * pair + 1;
          float(&to)[4] = S::kType == WeightType::kBf16 ? sum[first + b][n] : part[kAffine ? pair : 0][b][n];
          mma_16x8x16(to, w[b].low_row[i], w[b].high_row[i], w[b].low_row[j], w[b].high_row[j],
                      pair == 0 ? words.x : words.z, pair == 0 ? words.y : words.w);
        }
      }
    }
  }
  if constexpr (S::kType != WeightType::kBf16) {
#pragma unroll
    for (int32_t b = 0; b < rows; ++b) {
#pragma unroll
      for (int32_t n = 0; n < kTiles; ++n) {
        float(&d)[4] = sum[first + b][n];
        if constexpr (kAffine) add_sixteenth(part[0][b][n], part[1][b][n]);
        add_scaled(d, part[0][b][n], w[b].low_scale, w[b].high_scale);
        if constexpr (kAffine) {
          add_scaled(d, {x_sum[n].x, x_sum[n].y, x_sum[n].x, x_sum[n].y}, w[b].low_bias, w[b].high_bias);
        }
      }
    }
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

// This warp's sums of the block's slice of one unit. Loads run a batch ahead, also from one stage to the next.
template <typename S>
__device__ void multiply_slice(float (&sum)[S::kWarpRowTiles][S::kWarpTokenTiles][4], const ClusterBlock<S>& block,
                               const LanePlaces<S>& places, RingPosition& at) {
  constexpr int32_t kSteps = 2 * S::kBatches;
  constexpr int32_t kLastRows = S::kWarpRowTiles - (S::kBatches - 1) * S::kBatch;
  ClusterOperands<S> operands;
  wait_for_stage(block, at);
  const std::byte* stage = block.stage(at.stage);
  load_weights<S>(operands.w[0], stage, places, 0);
  load_activations<S>(operands.x[0], stage, places, 0);
  for (int32_t k = 0; k < block.work.num_k; ++k) {
    const int32_t current = at.stage;
    const bool more = k + 1 < block.work.num_k;
    const std::byte* next = stage;
    at.advance(block.work, block.num_clusters);
    const auto step = [&]<int32_t i>() {
      constexpr int32_t kGroup = i / S::kBatches;
      constexpr int32_t kFirst = i % S::kBatches * S::kBatch;
      float2 x_sum[S::kWarpTokenTiles] = {};
      if constexpr (S::kType == WeightType::kAffine4Gs32) {
#pragma unroll
        for (int32_t n = 0; n < S::kWarpTokenTiles; ++n) {
          x_sum[n] = *reinterpret_cast<const float2*>(stage + places.sums + (kGroup * S::kTokens + n * 8) * 4);
        }
      }
      if constexpr (i == S::kBatches) {
        if (more) {
          wait_for_stage(block, at);
          next = block.stage(at.stage);
        }
      }
      if constexpr (i + 1 < kSteps) {
        load_weights<S>(operands.w[(i + 1) % 2], stage, places, i + 1);
      } else {
        release_stage(block, current);
        if (more) load_weights<S>(operands.w[0], next, places, 0);
      }
      if constexpr (i == 0) load_activations<S>(operands.x[1], stage, places, 1);
      if constexpr (i == S::kBatches) {
        if (more) load_activations<S>(operands.x[0], next, places, 0);
      }
      if constexpr (S::kType == WeightType::kAffine4Gs32 && kFirst == 0) {
#pragma unroll
        for (ActivationFragment& x : operands.x[kGroup]) {
          x = {in_pairs(x.high, block.work.zero), in_pairs(x.low, block.work.zero)};
        }
      }
      multiply_batch<S, kFirst, kFirst + S::kBatch <= S::kWarpRowTiles ? S::kBatch : kLastRows>(
          sum, operands.w[i % 2], operands.x[kGroup], x_sum, block.work.zero);
    };
    [&]<int32_t... i>(std::integer_sequence<int32_t, i...>) {
      (step.template operator()<i>(), ...);
    }(std::make_integer_sequence<int32_t, kSteps>{});
    stage = next;
  }
}

// Sums go to the blocks that finish them, each slice's to a place of its own.
template <typename S>
__device__ void send_sums(const float (&sum)[S::kWarpRowTiles][S::kWarpTokenTiles][4], const ClusterBlock<S>& block) {
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
      const float(&d)[4] = sum[r][n / 2];
      if constexpr (S::kHalvesOfItem == 1) {
        store_to_block(at, to, float2{d[n % 2], d[n % 2 + 2]}, block.barriers.sums_full);
      } else {
        store_to_block(at, to, float4{d[0], d[1], d[2], d[3]}, block.barriers.sums_full);
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
    float sum[S::kWarpRowTiles][S::kWarpTokenTiles][4] = {};
    multiply_slice<S>(sum, block, places, at);
    block.barriers.sums_empty.wait(parity);
    parity ^= 1U;
    send_sums<S>(sum, block);
  }
}

}  // namespace kipp::cuda
