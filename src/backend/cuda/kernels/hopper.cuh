// Hopper's barriers in shared memory and the copy engine that completes on them.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace kipp::cuda {

// A barrier in shared memory: a phase completes when every expected arrival and every expected byte has come.
struct Barrier {
  uint64_t state;

  __device__ uint32_t address() const { return static_cast<uint32_t>(__cvta_generic_to_shared(this)); }

  __device__ void init(uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address()), "r"(arrivals) : "memory");
  }
  __device__ void arrive() { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address()) : "memory"); }
  __device__ void arrive_and_expect(uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address()), "r"(bytes) : "memory");
  }
  // Waits until the phase of this parity has completed.
  __device__ void wait(uint32_t parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "}" ::"r"(address()),
        "r"(parity)
        : "memory");
  }
};

// Makes initialised barriers visible to the copy engine.
__device__ inline void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// `bytes` (a multiple of 16) from global to shared memory, both aligned to 16.
__device__ inline void copy_bulk(uint32_t shared, const void* global, uint32_t bytes, const Barrier& barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared),
               "l"(global), "r"(bytes), "r"(barrier.address())
               : "memory");
}

// The box of a two-dimensional tensor map that begins at (column, row).
__device__ inline void copy_box(uint32_t shared, const CUtensorMap& map, int32_t column, int32_t row,
                                const Barrier& barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          shared),
      "l"(&map), "r"(column), "r"(row), "r"(barrier.address())
      : "memory");
}

// Moves registers between the warpgroups of a block, so that those that compute have more than those that copy.
template <uint32_t registers>
__device__ inline void raise_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}
template <uint32_t registers>
__device__ inline void lower_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

}  // namespace kipp::cuda
