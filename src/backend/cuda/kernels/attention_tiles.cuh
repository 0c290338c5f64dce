// Attention of generated rows: what one warp does with the positions of a chunk. Its tiles of 16 positions come through
// a ring of copies; keys and values are the rows of the matrix products, the group's query heads their columns.
#pragma once

#include "backend/cuda/kernels/attention_mma.cuh"
#include "backend/cuda/kernels/paged_kv.h"

namespace kipp::cuda {

inline constexpr int32_t kTilePositions = 16;
inline constexpr int32_t kMaxGroup = 8;
inline constexpr int32_t kTerms = 2;  // of a query and of a weight, FP16 each
// Weights are 2^14 times what a softmax has: so the smallest that FP16 has is far below what an FP32 sum would notice.
inline constexpr float kWeightShift = 14.0F;
inline constexpr uint32_t kTileBytes = kTilePositions * kRowBytes;  // of keys; as many of values follow
inline constexpr uint32_t kStageBytes = 2 * kTileBytes;

// A warp's share of the softmax: heads 2t and 2t + 1 of the group in each lane.
struct WarpState {
  float values[kHeadDim / 16][4];  // dimension 16 i + g (and + 8), head 2t (and 2t + 1)
  float max[2];
  float sum[2];  // of this lane's positions only
};

struct Chunk {
  int32_t first, end;  // positions
  int32_t block_id;    // lane i: of the chunk's i-th block
};

// q: [kGroup][stride].
template <int kGroup>
__device__ void load_query(uint32_t (&terms)[kHeadDim / 16][2][kTerms], const float* q, int32_t stride, int32_t lane) {
  const int32_t head = lane >> 2;
  const auto* row = reinterpret_cast<const float2*>(q + head * stride) + (lane & 3);
#pragma unroll
  for (int i = 0; i < kHeadDim / 16; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float2 pair = head < kGroup ? row[i * 8 + half * 4] : make_float2(0.0F, 0.0F);
      split_fp16(pair.x * kScoreScale, pair.y * kScoreScale, terms[i][half]);
    }
  }
}

// Keys and values of positions `first` to first + 15 (zeros past the chunk's end) to a stage of this warp's ring.
__device__ inline void copy_tile(uint32_t stage, const PagedKv& kv, const Chunk& chunk, int32_t kv_head, int32_t first,
                                 int32_t lane) {
  const int64_t block = __shfl_sync(0xFFFFFFFFU, chunk.block_id, (first - chunk.first) / kBlockPositions);
  const uint16_t* keys =
      kv.pool + block * kv.block_stride + kv_head * kKvHeadElements + first % kBlockPositions * kHeadDim;
  const uint32_t column = static_cast<uint32_t>(lane) % kRowChunks;
#pragma unroll
  for (int i = 0; i < kTilePositions / 2; ++i) {
    const int32_t row = 2 * i + lane / static_cast<int32_t>(kRowChunks);
    const bool valid = first + row < chunk.end;
    const uint16_t* source = keys + row * kHeadDim + column * 8;
    const uint32_t target = stage + swizzled(static_cast<uint32_t>(row), column);
    copy_async(target, source, valid);
    copy_async(target + kTileBytes, source + kKvValuesOffset, valid);
  }
}

__device__ inline float max_over_positions(float value) {
#pragma unroll
  for (int offset = 4; offset < 32; offset *= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFU, value, offset));
  }
  return value;
}

__device__ inline float sum_over_positions(float value) {
#pragma unroll
  for (int offset = 4; offset < 32; offset *= 2) {
    value += __shfl_xor_sync(0xFFFFFFFFU, value, offset);
  }
  return value;
}

// scores: (position g, head 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1).
__device__ inline void score_tile(float (&scores)[4], uint32_t keys, const uint32_t (&query)[kHeadDim / 16][2][kTerms],
                                  uint32_t lane) {
  float sums[2][kTerms][4] = {};  // of even and of odd steps: shorter chains
  const uint32_t row = lane & 15U;
#pragma unroll
  for (uint32_t i = 0; i < kHeadDim / 16; ++i) {
    uint32_t a[4];
    load_matrices(a, keys + swizzled(row, 2 * i + (lane >> 4)));
#pragma unroll
    for (int term = 0; term < kTerms; ++term) {
      mma_fp16(sums[i % 2][term], a, query[i][0][term], query[i][1][term]);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    scores[i] = (sums[0][0][i] + sums[1][0][i]) + (sums[0][1][i] + sums[1][1][i]);
  }
}

// Takes a tile with at least one valid position into the running softmax; `valid` positions count.
__device__ inline void add_tile(WarpState& state, uint32_t stage, const uint32_t (&query)[kHeadDim / 16][2][kTerms],
                                int32_t valid, int32_t lane) {
  const auto unsigned_lane = static_cast<uint32_t>(lane);
  float weights[4];
  score_tile(weights, stage, query, unsigned_lane);
  float rescale[2];
#pragma unroll
  for (int head = 0; head < 2; ++head) {
    float& upper = weights[head];
    float& lower = weights[head + 2];
    upper = lane / 4 < valid ? upper : -INFINITY;
    lower = lane / 4 + 8 < valid ? lower : -INFINITY;
    const float max = fmaxf(state.max[head], max_over_positions(fmaxf(upper, lower)));
    rescale[head] = exp2_fast(state.max[head] - max);
    upper = exp2_fast(upper - (max - kWeightShift));
    lower = exp2_fast(lower - (max - kWeightShift));
    state.max[head] = max;
    state.sum[head] = fmaf(state.sum[head], rescale[head], upper + lower);
  }
  uint32_t terms[2][kTerms];
  split_fp16(weights[0], weights[1], terms[0]);
  split_fp16(weights[2], weights[3], terms[1]);
#pragma unroll
  for (int term = 0; term < kTerms; ++term) {
    terms[0][term] = transpose_matrix(terms[0][term]);
    terms[1][term] = transpose_matrix(terms[1][term]);
  }
  const uint32_t row = (unsigned_lane & 7U) + (unsigned_lane >> 4) * 8;
#pragma unroll
  for (uint32_t i = 0; i < kHeadDim / 16; ++i) {
    uint32_t a[4];
    load_matrices_transposed(a, stage + kTileBytes + swizzled(row, 2 * i + ((unsigned_lane >> 3) & 1U)));
    float(&values)[4] = state.values[i];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      values[j] *= rescale[j & 1];
    }
#pragma unroll
    for (int term = kTerms - 1; term >= 0; --term) {
      mma_fp16(values, a, terms[0][term], terms[1][term]);
    }
  }
}

}  // namespace kipp::cuda
