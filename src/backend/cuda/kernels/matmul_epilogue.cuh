// What becomes of the sums that a thread of the matrix unit holds: rows g and g + 8 of a tile of 16, for one token.
#pragma once

#include "backend/cuda/kernels/matmul.h"
#include "backend/cuda/scales.h"

namespace kipp::cuda {

// Adds up what the slices of a product left, in their order.
__device__ inline float sum_of_partials(const float* first, int32_t num_partials, int64_t stride) {
  float sum = *first;
  for (int32_t p = 1; p < num_partials; ++p) sum += first[p * stride];
  return sum;
}

__device__ inline float swiglu(float gate, float up) {
  return gate / (1.0F + expf(-gate)) * up;
}

// Stores a value as one or two FP16 terms.
__device__ inline void store_activation(__half* high, __half* low, int64_t at, float value) {
  const __half first = __float2half_rn(value);
  high[at] = first;
  if (low != nullptr) {
    low[at] = __float2half_rn(value - __half2float(first));
  }
}

// The same of four neighbours.
__device__ inline void store_activations(__half* high, __half* low, int64_t at, const float (&values)[4]) {
  __align__(8) __half first[4];
  __align__(8) __half rest[4];
#pragma unroll
  for (int32_t i = 0; i < 4; ++i) {
    first[i] = __float2half_rn(values[i]);
    rest[i] = __float2half_rn(values[i] - __half2float(first[i]));
  }
  *reinterpret_cast<uint2*>(high + at) = *reinterpret_cast<const uint2*>(first);
  if (low != nullptr) *reinterpret_cast<uint2*>(low + at) = *reinterpret_cast<const uint2*>(rest);
}

// tile: of 16 rows; g: 0 … 7.
__device__ inline void store_rows(const MatmulArgs& args, int64_t token, int32_t tile, int32_t g, float low_row,
                                  float high_row, int32_t slice = 0) {
  const MatmulOutput& to = args.to;
  low_row *= args.out_scale;
  high_row *= args.out_scale;
  if (args.swiglu) {
    const int32_t at = tile * 8 + g;
    if (at < to.width) {
      store_activation(to.high, to.low, token * to.stride + at, swiglu(low_row, high_row) * kSwigluScale);
    }
    return;
  }
  const int32_t row = tile * kTileRows + g;
  float* out = to.out + slice * to.partial_stride + token * to.stride;
  // Once an element, so in no order, and an instruction that nobody waits for. It takes subnormal numbers for zero,
  // which the residual stream does not have to tell from it.
  if (to.accumulate) {
    if (row < to.width) atomicAdd(out + row, low_row);
    if (row + 8 < to.width) atomicAdd(out + row + 8, high_row);
    return;
  }
  if (row < to.width) out[row] = low_row;
  if (row + 8 < to.width) out[row + 8] = high_row;
}

}  // namespace kipp::cuda
