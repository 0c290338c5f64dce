// Hopper's instructions for attention: products of a warpgroup (128 threads), whose operands lie in shared memory in
// rows of 128 bytes with their 16-byte chunks swizzled, and barriers in shared memory between producers and consumers.
// Fragments of registers are those of mma.sync, warp w of a warpgroup having rows 16 w to 16 w + 15.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "backend/cuda/kernels/attention_mma.cuh"
#include "backend/cuda/kernels/hopper.cuh"
#include "backend/cuda/kernels/wgmma.cuh"

namespace kipp::cuda {

constexpr uint32_t kSwizzleRowBytes = 128;                    // 64 elements
constexpr uint32_t kSwizzleAtomBytes = 8 * kSwizzleRowBytes;  // operands are aligned to it

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ inline void init_barrier(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

__device__ inline void arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Waits for the phase of this parity to end; the phase before the first counts as ended, with parity 1.
__device__ inline void wait_phase(uint32_t barrier, uint32_t parity) {
  uint32_t done = 0;
  while (done == 0) {
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(barrier), "r"(parity)
                 : "memory");
  }
}

// Arrives, and keeps the phase open until `bytes` more have been copied.
__device__ inline void arrive_expecting(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// Copies the box of a three-dimensional tensor map that begins at (x, y, z), whose bytes `barrier` then counts.
__device__ inline void copy_box(uint32_t target, const CUtensorMap& map, int32_t x, int32_t y, int32_t z,
                                uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::
          "r"(target),
      "l"(&map), "r"(x), "r"(y), "r"(z), "r"(barrier)
      : "memory");
}

__device__ inline void store_shared(uint32_t address, const uint4& value) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(value.x), "r"(value.y), "r"(value.z),
               "r"(value.w)
               : "memory");
}

// A barrier of one warpgroup; 0 is that of __syncthreads().
__device__ inline void sync_warpgroup(uint32_t barrier) {
  asm volatile("bar.sync %0, 128;" ::"r"(barrier) : "memory");
}

// An operand at `address`: groups of eight rows are kSwizzleAtomBytes apart. `column_stride` is the distance between
// groups of 64 columns where rows run along the summed dimension; where columns do, it has no meaning.
__device__ inline uint64_t operand(uint32_t address, uint32_t column_stride) {
  constexpr uint64_t kSwizzle128 = 1;
  return uint64_t{(address & 0x3FFFFU) >> 4} | uint64_t{column_stride >> 4} << 16 |
         uint64_t{kSwizzleAtomBytes >> 4} << 32 | kSwizzle128 << 62;
}

// The same operand `bytes` further on.
__device__ inline uint64_t advance(uint64_t operand, uint32_t bytes) {
  return operand + (bytes >> 4);
}

// Waits for all but the last `kPending` committed groups; `results` are then ready.
template <int kPending>
__device__ inline void wait_products(float (&results)[64]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
#pragma unroll
  for (int i = 0; i < 64; ++i) {
    asm volatile("" : "+f"(results[i])::"memory");  // not read before the wait
  }
}

#define KIPP_8_REGISTERS(array, i)                                                                                    \
  "+f"(array[i]), "+f"(array[i + 1]), "+f"(array[i + 2]), "+f"(array[i + 3]), "+f"(array[i + 4]), "+f"(array[i + 5]), \
      "+f"(array[i + 6]), "+f"(array[i + 7])
#define KIPP_64_REGISTERS(array)                                                                                    \
  KIPP_8_REGISTERS(array, 0), KIPP_8_REGISTERS(array, 8), KIPP_8_REGISTERS(array, 16), KIPP_8_REGISTERS(array, 24), \
      KIPP_8_REGISTERS(array, 32), KIPP_8_REGISTERS(array, 40), KIPP_8_REGISTERS(array, 48),                        \
      KIPP_8_REGISTERS(array, 56)
#define KIPP_64_NAMES                                                                                \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, " \
  "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "  \
  "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, "  \
  "%59, %60, %61, %62, %63}"

// c (64x128) = a (64x16) b (16x128), plus c where kAdd; both operands have the summed dimension along their rows.
template <bool kAdd>
__device__ inline void product_of_rows(float (&c)[64], uint64_t a, uint64_t b) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\nwgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 " KIPP_64_NAMES
      ", %64, %65, p, 1, 1, 0, 0;\n}"
      : KIPP_64_REGISTERS(c)
      : "l"(a), "l"(b), "n"(kAdd ? 1 : 0));
}

// c (64x128) += a (64x16, registers) b (16x128); b's rows run along the 128 columns.
__device__ inline void product_with_columns(float (&c)[64], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 " KIPP_64_NAMES
      ", {%64, %65, %66, %67}, %68, p, 1, 1, 1;\n}"
      : KIPP_64_REGISTERS(c)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

#undef KIPP_64_NAMES
#undef KIPP_64_REGISTERS
#undef KIPP_8_REGISTERS

#endif

}  // namespace kipp::cuda
