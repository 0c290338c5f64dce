// Attention of generated rows: the results of a block's warps, and of a row's chunks, become one.
#pragma once

#include "backend/cuda/kernels/attention_generated.h"
#include "backend/cuda/kernels/attention_tiles.cuh"
#include "backend/cuda/scales.h"

namespace kipp::cuda {

inline constexpr int32_t kAttentionWarps = 4;  // of a block

// The warps' results in shared memory, where their rings were.
struct Merge {
  static constexpr int32_t kHeadStride = kHeadDim + 4;  // eight dimensions of four heads lie in 32 banks
  float values[kAttentionWarps][kMaxGroup][kHeadStride];
  float max[kAttentionWarps][kMaxGroup];
  float sum[kAttentionWarps][kMaxGroup];
  bool last;
};

__device__ inline void store_state(Merge& merge, const WarpState& state, int32_t warp, int32_t lane) {
  const int32_t head = 2 * (lane & 3);
  const int32_t dimension = lane >> 2;
#pragma unroll
  for (int i = 0; i < kHeadDim / 16; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      merge.values[warp][head + (j & 1)][16 * i + dimension + 8 * (j >> 1)] = state.values[i][j];
    }
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float sum = sum_over_positions(state.sum[i]);
    if (dimension == 0) {
      merge.max[warp][head + i] = state.max[i];
      merge.sum[warp][head + i] = sum;
    }
  }
}

// Four dimensions of one head, summed over positions with weights whose sum and largest exponent are `sum` and `max`.
struct Quad {
  float4 values;
  float sum, max;
};

__device__ inline void add_scaled(Quad& quad, const float4& values, float sum, float weight) {
  quad.sum = fmaf(sum, weight, quad.sum);
  quad.values.x = fmaf(values.x, weight, quad.values.x);
  quad.values.y = fmaf(values.y, weight, quad.values.y);
  quad.values.z = fmaf(values.z, weight, quad.values.z);
  quad.values.w = fmaf(values.w, weight, quad.values.w);
}

__device__ inline Quad merge_warps(const Merge& merge, int32_t head, int32_t dimension) {
  Quad quad{make_float4(0.0F, 0.0F, 0.0F, 0.0F), 0.0F, -INFINITY};
#pragma unroll
  for (int warp = 0; warp < kAttentionWarps; ++warp) {
    quad.max = fmaxf(quad.max, merge.max[warp][head]);
  }
#pragma unroll
  for (int warp = 0; warp < kAttentionWarps; ++warp) {
    const float weight = exp2_fast(merge.max[warp][head] - quad.max);  // zero for a warp without positions
    add_scaled(quad, *reinterpret_cast<const float4*>(&merge.values[warp][head][dimension]), merge.sum[warp][head],
               weight);
  }
  return quad;
}

__device__ inline void write_output(const AttentionGeneratedArgs& args, int64_t offset, const Quad& quad) {
  const float values[4] = {quad.values.x, quad.values.y, quad.values.z, quad.values.w};
  uint16_t high[4];
  uint16_t low[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float scaled = values[i] / quad.sum * kAttentionScale;
    const __half rounded = __float2half_rn(scaled);
    high[i] = __half_as_ushort(rounded);
    low[i] = __half_as_ushort(__float2half_rn(scaled - __half2float(rounded)));
  }
  *reinterpret_cast<ushort4*>(args.high + offset) = make_ushort4(high[0], high[1], high[2], high[3]);
  *reinterpret_cast<ushort4*>(args.low + offset) = make_ushort4(low[0], low[1], low[2], low[3]);
}

// Counts this block as finished, its partial results visible to the block that counts last, which gets true.
__device__ inline bool is_last(Merge& merge, uint32_t* counter, int32_t num_chunks) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();  // of all that the barrier has ordered before it
    merge.last = atomicAdd(counter, 1U) == static_cast<uint32_t>(num_chunks - 1);
    if (merge.last) {
      *counter = 0;
      __threadfence();
    }
  }
  __syncthreads();
  return merge.last;
}

// The chunks' partial results, a batch of them on the way at a time.
template <int kGroup>
__device__ Quad merge_chunks(const float2* sums, const float4* values, int32_t num_chunks, int32_t quad_index) {
  constexpr int32_t kBatch = 16;
  constexpr int32_t kQuads = kGroup * kHeadDim / 4;
  const int32_t head = quad_index / (kHeadDim / 4);
  Quad quad{make_float4(0.0F, 0.0F, 0.0F, 0.0F), 0.0F, -INFINITY};
  for (int32_t first = 0; first < num_chunks; first += kBatch) {
    float2 batch_sums[kBatch];
    float4 batch_values[kBatch];
    float max = quad.max;
#pragma unroll
    for (int32_t i = 0; i < kBatch; ++i) {
      const int32_t chunk = first + i;
      const bool valid = chunk < num_chunks;
      batch_sums[i] = valid ? __ldcg(sums + chunk * kGroup + head) : make_float2(-INFINITY, 0.0F);
      batch_values[i] = valid ? __ldcg(values + chunk * kQuads + quad_index) : make_float4(0.0F, 0.0F, 0.0F, 0.0F);
    }
#pragma unroll
    for (int32_t i = 0; i < kBatch; ++i) {
      max = fmaxf(max, batch_sums[i].x);
    }
    const Quad before = quad;
    quad = {make_float4(0.0F, 0.0F, 0.0F, 0.0F), 0.0F, max};
    add_scaled(quad, before.values, before.sum, exp2_fast(before.max - max));
#pragma unroll
    for (int32_t i = 0; i < kBatch; ++i) {
      add_scaled(quad, batch_values[i], batch_sums[i].y, exp2_fast(batch_sums[i].x - max));
    }
  }
  return quad;
}

}  // namespace kipp::cuda
