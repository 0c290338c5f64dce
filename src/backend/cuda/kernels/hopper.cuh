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
  // Arrives at the same barrier of another block of the cluster, which may then overwrite what this thread has read.
  __device__ void arrive_at(uint32_t block) {
    asm volatile(
        "{\n"
        ".reg .b32 there;\n"
        "mapa.shared::cluster.u32 there, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
        "}" ::"r"(address()),
        "r"(block)
        : "memory");
  }
  // As wait(), for what other blocks of the cluster wrote (store_to_block).
  __device__ void wait_for_cluster(uint32_t parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "}" ::"r"(address()),
        "r"(parity)
        : "memory");
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

// A block's barrier `id` (1 … 15), at which some warps wait for all and the others only say that they were there.
__device__ inline void wait_at_barrier(int32_t id, int32_t threads) {
  asm volatile("barrier.cta.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ inline void pass_barrier(int32_t id, int32_t threads) {
  asm volatile("barrier.cta.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Makes initialised barriers visible to the copy engine.
__device__ inline void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// All threads of all blocks of a cluster: none comes out of the wait before all have arrived. Makes barriers visible
// that fence_barrier_init() was called for, nothing else.
__device__ inline void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}
// The same, after everything that this thread did to other blocks' shared memory.
__device__ inline void cluster_arrive_release() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}
__device__ inline void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}
// Writes to where `shared` lies in another block of the cluster; these are bytes that the barrier there expects, so
// that nobody has to wait for them here.
__device__ inline void store_to_block(uint32_t shared, uint32_t block, float2 value, const Barrier& barrier) {
  asm volatile(
      "{\n"
      ".reg .b32 there, barrier;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mapa.shared::cluster.u32 barrier, %2, %1;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [there], {%3, %4}, [barrier];\n"
      "}" ::"r"(shared),
      "r"(block), "r"(barrier.address()), "f"(value.x), "f"(value.y)
      : "memory");
}
__device__ inline void store_to_block(uint32_t shared, uint32_t block, float4 value, const Barrier& barrier) {
  asm volatile(
      "{\n"
      ".reg .b32 there, barrier;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mapa.shared::cluster.u32 barrier, %2, %1;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [there], {%3, %4, %5, %6}, [barrier];\n"
      "}" ::"r"(shared),
      "r"(block), "r"(barrier.address()), "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w)
      : "memory");
}

// Has a tensor map, a kernel's parameter, brought near.
__device__ inline void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
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

// The same into each block of the cluster whose bit of `blocks` is set, at the same place, and on its barrier.
__device__ inline void copy_box_to_blocks(uint32_t shared, const CUtensorMap& map, int32_t column, int32_t row,
                                          const Barrier& barrier, uint32_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared),
      "l"(&map), "r"(column), "r"(row), "r"(barrier.address()), "h"(static_cast<uint16_t>(blocks))
      : "memory");
}

// The box of a three-dimensional tensor map that begins at (0, column, row).
__device__ inline void copy_records(uint32_t shared, const CUtensorMap& map, int32_t column, int32_t row,
                                    const Barrier& barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::
          "r"(shared),
      "l"(&map), "r"(0), "r"(column), "r"(row), "r"(barrier.address())
      : "memory");
}

// Makes this thread's writes to shared memory visible to what the copy engine and the matrix unit are asked for behind
// a later barrier.
__device__ inline void fence_for_engines() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// A thread's stores of boxes from shared to global memory, of what fence_for_engines() made visible. What a store reads
// may be overwritten after wait_for_reads, and it is done after wait_for_stores.
__device__ inline void store_box(const CUtensorMap& map, int32_t column, int32_t row, uint32_t shared) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map), "r"(column),
               "r"(row), "r"(shared)
               : "memory");
}
__device__ inline void commit_stores() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
template <int32_t pending>
__device__ inline void wait_for_reads() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}
template <int32_t pending>
__device__ inline void wait_for_stores() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory");
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
