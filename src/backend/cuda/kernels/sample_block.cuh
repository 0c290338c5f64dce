// Reductions, scans and searches that all threads of a block make together. Each begins and ends with its shared memory
// free for the next.
#pragma once

#include <cstdint>

#include "backend/cuda/launch.h"

namespace kipp::cuda {

inline constexpr int32_t kSampleThreads = 512;
inline constexpr int32_t kSampleWarps = kSampleThreads / 32;
inline constexpr uint32_t kAllLanes = 0xFFFFFFFFU;

__device__ inline int32_t thread_index() {
  return static_cast<int32_t>(threadIdx.x);
}

template <typename T>
__device__ T larger(T a, T b) {
  return a > b ? a : b;
}
template <typename T>
__device__ T smaller(T a, T b) {
  return a < b ? a : b;
}

// The largest value of all threads, in every thread.
template <typename T>
__device__ T block_max(T value) {
  __shared__ T warps[kSampleWarps];
  for (uint32_t offset = 16; offset > 0; offset /= 2) {
    value = larger(value, __shfl_xor_sync(kAllLanes, value, offset));
  }
  if (thread_index() % 32 == 0) {
    warps[thread_index() / 32] = value;
  }
  __syncthreads();
  value = warps[0];
  for (int32_t w = 1; w < kSampleWarps; ++w) {
    value = larger(value, warps[w]);
  }
  __syncthreads();
  return value;
}

struct Scan {
  uint64_t before;  // sum over the threads before this one
  uint64_t total;
};

__device__ inline Scan block_scan(uint64_t value) {
  __shared__ uint64_t warps[kSampleWarps];
  const uint32_t lane = threadIdx.x % 32;
  uint64_t sum = value;  // of the lanes up to this one
  for (uint32_t offset = 1; offset < 32; offset *= 2) {
    const uint64_t other = __shfl_up_sync(kAllLanes, sum, offset);
    sum += lane >= offset ? other : 0;
  }
  if (lane == 31) {
    warps[thread_index() / 32] = sum;
  }
  __syncthreads();
  Scan scan{sum - value, 0};
  for (int32_t w = 0; w < kSampleWarps; ++w) {
    scan.before += w < thread_index() / 32 ? warps[w] : 0;
    scan.total += warps[w];
  }
  __syncthreads();
  return scan;
}

// Adds to a 64-bit sum in shared memory with two 32-bit atomics, which the hardware has (a 64-bit one is a loop there):
// whoever makes the low word wrap around carries.
__device__ inline void add_shared(uint64_t* sum, uint64_t value) {
  auto* words = reinterpret_cast<uint32_t*>(sum);  // low, high
  const auto low = static_cast<uint32_t>(value);
  const uint32_t before = atomicAdd(&words[0], low);
  const uint32_t high = static_cast<uint32_t>(value >> 32) + (before + low < low ? 1U : 0U);
  if (high != 0) {
    atomicAdd(&words[1], high);
  }
}

// Whether this block is the last of its row (grid: chunk, row) to come here; if so it sees what the others have
// written. The counter wraps around to 0 by itself.
__device__ inline bool is_last_block(uint32_t* counter) {
  __shared__ bool is_last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    is_last = atomicInc(counter, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  __threadfence();
  return is_last;
}

// Buckets of a histogram. A thread of a search holds kBucketsPerThread neighbours, the first thread the highest ones.
inline constexpr int32_t kBuckets = 2048;
inline constexpr int32_t kBucketsPerThread = kBuckets / kSampleThreads;

__device__ inline int32_t bucket_of_thread(int32_t i) {
  return kBuckets - 1 - (thread_index() * kBucketsPerThread + i);
}

struct Place {
  int32_t bucket;
  uint64_t need;  // what is still needed of the bucket's mass, >= 1
};

// The bucket at which the mass, summed from the highest bucket down, reaches `need`: 1 <= need <= the sum of all.
// scan: block_scan of the sums of mass.
__device__ inline Place find_place(const uint64_t (&mass)[kBucketsPerThread], const Scan& scan, uint64_t need) {
  __shared__ Place place;
  uint64_t before = scan.before;
  for (int32_t i = 0; i < kBucketsPerThread; ++i) {
    if (before < need && need <= before + mass[i]) {
      place = Place{bucket_of_thread(i), need - before};
    }
    before += mass[i];
  }
  __syncthreads();
  const Place found = place;
  __syncthreads();
  return found;
}

__device__ inline uint64_t sum_of(const uint64_t (&mass)[kBucketsPerThread]) {
  uint64_t sum = 0;
  for (const uint64_t one : mass) {
    sum += one;
  }
  return sum;
}

}  // namespace kipp::cuda
