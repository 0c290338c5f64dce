// A head of 128 elements in the registers of a warp: lane l holds elements l, l + 32, l + 64, l + 96, which are two
// rotary pairs.
#pragma once

#include <cstdint>

namespace kipp::cuda {

inline constexpr int32_t kLaneElements = 4;

__device__ inline float sum_of_warp(float value) {
#pragma unroll
  for (int32_t step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xFFFFFFFFU, value, step);
  return value;
}

// weight: [128] bf16. angles: [64] (cos, sin) of this row.
__device__ inline void normalise_and_rotate(float (&x)[kLaneElements], const uint16_t* weight, float epsilon,
                                            const float2* angles, int32_t lane) {
  float squares = 0.0F;
#pragma unroll
  for (int32_t i = 0; i < kLaneElements; ++i) squares += x[i] * x[i];
  const float factor = 1.0F / sqrtf(sum_of_warp(squares) / 128.0F + epsilon);
#pragma unroll
  for (int32_t i = 0; i < kLaneElements; ++i) {
    x[i] = x[i] * factor * __uint_as_float(static_cast<uint32_t>(weight[lane + 32 * i]) << 16);
  }
#pragma unroll
  for (int32_t i = 0; i < 2; ++i) {
    const float2 angle = angles[lane + 32 * i];
    const float first = x[i];
    const float second = x[i + 2];
    x[i] = first * angle.x - second * angle.y;
    x[i + 2] = second * angle.x + first * angle.y;
  }
}

}  // namespace kipp::cuda
