// What attention's kernels share: asynchronous copies, fragments of mma.sync and splitting FP32 into 16-bit terms.
// Fragments are named as in the PTX manual: lane = 4 * g + t; an accumulator holds (row g, columns 2t and 2t+1) and
// (row g+8, the same columns).
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

namespace kipp::cuda {

// Rows of 128 16-bit elements in shared memory: 16 chunks of 16 bytes, permuted by the row so that eight rows' chunks
// of one column lie in different banks.
constexpr uint32_t kRowBytes = 256;
constexpr uint32_t kRowChunks = 16;

__device__ inline uint32_t swizzled(uint32_t row, uint32_t chunk) {
  return row * kRowBytes + ((chunk ^ (row & 7U)) << 4);
}

__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Copies 16 bytes, or writes zeros without reading `source` where `valid` is false.
__device__ inline void copy_async(uint32_t target, const void* source, bool valid) {
  const uint32_t bytes = valid ? 16U : 0U;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(source), "r"(bytes) : "memory");
}

__device__ inline void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until all but the last `kPending` groups that this thread committed have arrived.
template <int kPending>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Four 8x8 matrices; lane l gives the address of row l % 8 of matrix l / 8.
__device__ inline void load_matrices(uint32_t (&to)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

__device__ inline void load_matrices_transposed(uint32_t (&to)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

// An 8x8 matrix of 16-bit elements, row g and columns 2t, 2t+1 in each lane, transposed across the warp.
__device__ inline uint32_t transpose_matrix(uint32_t matrix) {
  uint32_t out;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(matrix));
  return out;
}

// c += a b, with a 16x16 (row-major), b 16x8.
__device__ inline void mma_fp16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two values in one register, `first` in its lower half.
__device__ inline uint32_t pack_fp16(float first, float second) {
  const __half2 pair = __floats2half2_rn(first, second);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// (first, second) as a sum of FP16 pairs, the largest first: each term takes eleven bits more, down to 2^-24.
template <int kTerms>
__device__ inline void split_fp16(float first, float second, uint32_t (&terms)[kTerms]) {
#pragma unroll
  for (int i = 0; i < kTerms; ++i) {
    const __half2 pair = __floats2half2_rn(first, second);
    terms[i] = *reinterpret_cast<const uint32_t*>(&pair);
    const float2 widened = __half22float2(pair);
    first -= widened.x;
    second -= widened.y;
  }
}

// 2^x to two units in the last place; zero below 2^-126 and for minus infinity.
__device__ inline float exp2_fast(float x) {
  float out;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
}

// Over the four lanes of a fragment's row.
__device__ inline float max_over_columns(float value) {
  value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFU, value, 1));
  return fmaxf(value, __shfl_xor_sync(0xFFFFFFFFU, value, 2));
}

__device__ inline float sum_over_columns(float value) {
  value += __shfl_xor_sync(0xFFFFFFFFU, value, 1);
  return value + __shfl_xor_sync(0xFFFFFFFFU, value, 2);
}

// log2(e) / sqrt(head_dim): scores in units in which exp2 gives the softmax's weights.
constexpr float kScoreScale = 0x1.0527dcp-3F;

}  // namespace kipp::cuda
