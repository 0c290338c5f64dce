// RMS norm of a row by one block. Its sum of squares is a tree of fixed shape, that of 512 threads: a smaller block's
// threads stand for several each, so a row's bits are the same whichever kernel normalises it.
#pragma once

#include <cuda_fp16.h>

#include "backend/cuda/kernels/matmul.h"
#include "backend/cuda/kernels/matmul_epilogue.cuh"
#include "backend/cuda/launch.h"

namespace kipp::cuda {

template <int32_t threads>
struct NormRow {
  static constexpr int32_t kLeaves = 512;  // of the tree
  static constexpr int32_t kShares = kLeaves / threads;
  static constexpr int32_t kQuads = (kMaxNormWidth / 4 + threads - 1) / threads;  // of four channels, a thread's most
  static_assert(kLeaves % threads == 0);

  __device__ static int32_t channel(int32_t quad) { return 4 * (static_cast<int32_t>(threadIdx.x) + quad * threads); }

  __device__ static void load_weights(uint2 (&weights)[kQuads], const uint16_t* from, int32_t width) {
#pragma unroll
    for (int32_t q = 0; q < kQuads; ++q) {
      weights[q] = channel(q) < width ? *reinterpret_cast<const uint2*>(from + channel(q)) : uint2{};
    }
  }

  // 1 / sqrt(mean(x²) + epsilon). scratch: [16] in shared memory, which the block no longer reads.
  __device__ static float factor(const float4 (&x)[kQuads], int32_t width, float epsilon, float* scratch) {
    float squares[kShares] = {};
#pragma unroll
    for (int32_t q = 0; q < kQuads; ++q) {
      const float first = __fmaf_rn(x[q].x, x[q].x, __fmul_rn(x[q].y, x[q].y));
      const float second = __fmaf_rn(x[q].z, x[q].z, __fmul_rn(x[q].w, x[q].w));
      squares[q % kShares] = __fadd_rn(squares[q % kShares], __fadd_rn(first, second));
    }
#pragma unroll
    for (int32_t step = 16; step > 0; step /= 2) {
#pragma unroll
      for (float& share : squares) share += __shfl_xor_sync(0xFFFFFFFFU, share, step);
    }
    if (threadIdx.x % 32 == 0) {
#pragma unroll
      for (int32_t s = 0; s < kShares; ++s) scratch[s * (threads / 32) + threadIdx.x / 32] = squares[s];
    }
    __syncthreads();
    float sum = 0.0F;
#pragma unroll
    for (int32_t w = 0; w < kLeaves / 32; ++w) sum += scratch[w];
    return 1.0F / sqrtf(sum / static_cast<float>(width) + epsilon);
  }

  // Four channels, normalised, as FP16 terms at high[at …] and low[at …].
  __device__ static void store(__half* high, __half* low, int64_t at, const float4& x, const uint2& weights,
                               float factor, float scale) {
    const float values[4] = {x.x * factor * __uint_as_float(weights.x << 16) * scale,
                             x.y * factor * __uint_as_float(weights.x & 0xFFFF0000U) * scale,
                             x.z * factor * __uint_as_float(weights.y << 16) * scale,
                             x.w * factor * __uint_as_float(weights.y & 0xFFFF0000U) * scale};
    store_activations(high, low, at, values);
  }
};

// Rows of activations in shared memory.
struct SharedTerms {
  std::byte* first;    // high terms of row 0
  int32_t row_bytes;   // from one row to the next
  int32_t term_bytes;  // from a row's high terms to its low ones
};

// Normalises rows to shared memory, zeros up to padded_columns, for all threads of the block to read. Weights do not
// wait for the previous kernel.
template <int32_t threads>
__device__ void normalise_rows(const NormedRows& rows, int32_t num_rows, int32_t padded_columns,
                               const SharedTerms& to) {
  using Row = NormRow<threads>;
  __shared__ float scratch[2][Row::kLeaves / 32];
  uint2 weights[Row::kQuads];
  Row::load_weights(weights, rows.weight, rows.width);
  wait_for_previous();
  for (int32_t r = 0; r < num_rows; ++r) {
    const float* from = rows.residual + int64_t{r} * rows.width;
    float4 x[Row::kQuads] = {};
#pragma unroll
    for (int32_t q = 0; q < Row::kQuads; ++q) {
      if (Row::channel(q) < rows.width) x[q] = *reinterpret_cast<const float4*>(from + Row::channel(q));
    }
    const float factor = Row::factor(x, rows.width, rows.epsilon, scratch[r % 2]);
    auto* high = reinterpret_cast<__half*>(to.first + r * to.row_bytes);
    auto* low = reinterpret_cast<__half*>(to.first + r * to.row_bytes + to.term_bytes);
#pragma unroll
    for (int32_t q = 0; q < Row::kQuads; ++q) {
      const int32_t at = Row::channel(q);
      if (at < padded_columns) Row::store(high, low, at, x[q], weights[q], factor, rows.scale);
    }
  }
  __syncthreads();
}

}  // namespace kipp::cuda
