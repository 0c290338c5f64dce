// A head of 128 elements in the registers of a warp: lane l holds elements l, l + 32, l + 64, l + 96, which are two
// rotary pairs.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "backend/cuda/kernels/matmul_epilogue.cuh"
#include "backend/cuda/kernels/projected_heads.h"

namespace kipp::cuda {

inline constexpr int32_t kLaneElements = 4;

__device__ inline float sum_of_warp(float value) {
#pragma unroll
  for (int32_t step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xFFFFFFFFU, value, step);
  return value;
}

// A lane's part of [128] bf16 weights.
__device__ inline void load_norm(float (&weight)[kLaneElements], const uint16_t* weights, int32_t lane) {
#pragma unroll
  for (int32_t i = 0; i < kLaneElements; ++i) {
    weight[i] = __uint_as_float(static_cast<uint32_t>(weights[lane + 32 * i]) << 16);
  }
}

// turns: (cos, sin) of the lane's two pairs.
__device__ inline void normalise_and_rotate(float (&x)[kLaneElements], const float (&weight)[kLaneElements],
                                            float epsilon, const float2 (&turns)[2]) {
  float squares = 0.0F;
#pragma unroll
  for (int32_t i = 0; i < kLaneElements; ++i) squares += x[i] * x[i];
  const float factor = 1.0F / sqrtf(sum_of_warp(squares) / 128.0F + epsilon);
#pragma unroll
  for (int32_t i = 0; i < kLaneElements; ++i) x[i] = x[i] * factor * weight[i];
#pragma unroll
  for (int32_t i = 0; i < 2; ++i) {
    const float first = x[i];
    const float second = x[i + 2];
    x[i] = first * turns[i].x - second * turns[i].y;
    x[i + 2] = second * turns[i].x + first * turns[i].y;
  }
}

// A head of a row, from what was projected; `weight` (load_norm) null: a value head.
__device__ inline void load_head(float (&x)[kLaneElements], const ProjectedHeads& heads, int64_t row, int32_t head,
                                 const float (*weight)[kLaneElements], int32_t lane) {
  const float* from = heads.sums + row * heads.width + head * 128 + lane;
#pragma unroll
  for (int32_t i = 0; i < kLaneElements; ++i) {
    x[i] = sum_of_partials(from + 32 * i, heads.num_partials, heads.partial_stride);
  }
  if (weight == nullptr) return;
  const float2* angles = heads.angles + row * 64 + lane;
  const float2 turns[2] = {angles[0], angles[32]};
  normalise_and_rotate(x, *weight, heads.epsilon, turns);
}

// An element of K or V as the pool holds it: rounded to bf16, then put down as FP16, which is exact from 2^-14 to 2^16.
__device__ inline __half stored_kv(float x) {
  return __float2half_rn(__bfloat162float(__float2bfloat16_rn(x)));
}

// To the pool: `to` is where the head lies.
__device__ inline void store_head(uint16_t* to, const float (&x)[kLaneElements], int32_t lane) {
#pragma unroll
  for (int32_t i = 0; i < kLaneElements; ++i) to[lane + 32 * i] = __half_as_ushort(stored_kv(x[i]));
}

}  // namespace kipp::cuda
