// One row as the kernels of the sampler see it: its request, its logits, its scratch, and this block's chunk of ids.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/sample_block.cuh"
#include "backend/cuda/kernels/sample_kernels.h"
#include "sampling/sampling_math.h"
#include "sampling/selection.h"

namespace kipp::cuda {

inline constexpr int32_t kMaxChunks = 64;

// What the kernels of one call tell each other. Counters and histograms are zero between calls.
struct alignas(128) SampleScratch {
  uint32_t num_finished;  // blocks of the running kernel
  uint32_t list_size;
  uint32_t best_key;  // 0: there is nothing to draw
  uint32_t raw_best;  // float_order of the largest raw logit
  Place place;        // the bucket that a cut lies in, and what of it is kept
  bool cut_by_count;  // prepare has found that top_k cuts
  Cut cut;            // what is kept so far
  float log_sum;
  uint64_t best[kMaxChunks];   // packed
  uint64_t above[kMaxChunks];  // summed weights
  uint64_t ties[kMaxChunks];
  uint32_t raw[kMaxChunks];
  uint32_t counts[kBuckets];
  uint64_t weights[kBuckets];
};

__host__ __device__ inline size_t padded_tokens(int32_t num_tokens) {
  return (static_cast<size_t>(num_tokens) + 31) / 32 * 32;
}
// Scratch, keys, list.
__host__ __device__ inline size_t row_bytes(int32_t num_tokens) {
  return sizeof(SampleScratch) + 2 * sizeof(uint32_t) * padded_tokens(num_tokens);
}

struct SampleRowView {
  const SampleParams* params;
  const float* logits;
  SampleScratch* scratch;
  uint32_t* keys;  // [num_tokens] of an edited row, from prepare on
  uint32_t* list;  // [num_tokens]
  SampleResult* result;
  int32_t* id;
  int32_t num_tokens, begin, end;  // all ids; those of this block's chunk
};

// Ids of a chunk; a multiple of 4, so that vectors do not cross chunks.
__device__ inline int32_t chunk_size(int32_t num_tokens) {
  const auto chunks = static_cast<int32_t>(gridDim.x);
  return ((num_tokens + chunks - 1) / chunks + 3) / 4 * 4;
}

__device__ inline SampleRowView this_row(const SampleKernelArgs& kernel_args) {
  const SampleArgs& args = kernel_args.args;
  const uint32_t row = blockIdx.y;
  auto* base = static_cast<unsigned char*>(args.workspace.data) + row * row_bytes(args.num_tokens);
  auto* keys = reinterpret_cast<uint32_t*>(base + sizeof(SampleScratch));
  const int32_t chunk = chunk_size(args.num_tokens);
  const auto begin = static_cast<int32_t>(blockIdx.x) * chunk;
  return {kernel_args.batch.params == nullptr ? nullptr : kernel_args.batch.params + row,
          args.logits + row * args.stride,
          reinterpret_cast<SampleScratch*>(base),
          keys,
          keys + padded_tokens(args.num_tokens),
          args.results + row,
          args.ids + row,
          args.num_tokens,
          smaller(begin, args.num_tokens),
          smaller(begin + chunk, args.num_tokens)};
}

// visit(id, words[id]) for the ids of the chunk, four neighbours to a thread.
template <typename Visit>
__device__ void for_each_word(const uint32_t* words, int32_t begin, int32_t end, Visit visit) {
  for (int32_t id = begin + 4 * thread_index(); id < end; id += 4 * kSampleThreads) {
    if (id + 4 <= end) {
      const uint4 four = *reinterpret_cast<const uint4*>(words + id);
      visit(id, four.x);
      visit(id + 1, four.y);
      visit(id + 2, four.z);
      visit(id + 3, four.w);
    } else {
      for (int32_t i = id; i < end; ++i) {
        visit(i, words[i]);
      }
    }
  }
}

__device__ inline float float_of_bits(uint32_t bits) {
  return __uint_as_float(bits);
}

__device__ inline uint32_t key_at(const SampleRowView& row, int32_t id) {
  return row.params->edited != 0 ? row.keys[id] : order_key(row.logits[id]);
}

// visit(id, key) for the ids of the chunk that are not excluded.
template <typename Visit>
__device__ void for_each_key(const SampleRowView& row, Visit visit) {
  const bool edited = row.params->edited != 0;
  const uint32_t* words = edited ? row.keys : reinterpret_cast<const uint32_t*>(row.logits);
  for_each_word(words, row.begin, row.end, [&](int32_t id, uint32_t word) {
    const uint32_t key = edited ? word : order_key(float_of_bits(word));
    if (key != 0) {
      visit(id, key);
    }
  });
}

// Best key first, then lowest id.
__device__ inline uint64_t packed(uint32_t key, int32_t id) {
  return (uint64_t{key} << 32) | ~static_cast<uint32_t>(id);
}
__device__ inline uint32_t key_of_packed(uint64_t value) {
  return static_cast<uint32_t>(value >> 32);
}
__device__ inline int32_t id_of_packed(uint64_t value) {
  return static_cast<int32_t>(~static_cast<uint32_t>(value));
}
// Larger than any packed key: the row has a logit that is not finite.
inline constexpr uint64_t kBroken = ~uint64_t{0};

// Buckets of 1/16, from -64 to 64 (what lies beyond is in the outer ones); they never decrease with the key, since
// every step is monotone. Logits of Qwen3 lie within.
__device__ inline int32_t bucket_of(uint32_t key) {
  const float sixteenths = logit_of_key(key) * 16.0F;
  constexpr float kHalf = kBuckets / 2;
  return static_cast<int32_t>(floorf(fminf(fmaxf(sixteenths, -kHalf), kHalf - 1.0F))) + kBuckets / 2;
}

__device__ inline uint64_t weight_of_key(const SampleRowView& row, float best, uint32_t key) {
  return weight_of(saturate(best - logit_of_key(key)), row.params->inverse);
}

__device__ inline void add_global(uint32_t* sum, uint32_t value) {
  atomicAdd(sum, value);
}
__device__ inline void add_global(uint64_t* sum, uint64_t value) {
  atomicAdd(reinterpret_cast<unsigned long long*>(sum), static_cast<unsigned long long>(value));
}

// Adds a block's histogram in shared memory to the row's.
template <typename T>
__device__ void flush(const T* shared, T* sums) {
  for (int32_t bucket = thread_index(); bucket < kBuckets; bucket += kSampleThreads) {
    if (shared[bucket] != 0) {
      add_global(&sums[bucket], shared[bucket]);
    }
  }
}

// The row's histogram as find_place wants it; leaves zeros behind.
template <typename T>
__device__ void take(T* sums, uint64_t (&mass)[kBucketsPerThread]) {
  for (int32_t i = 0; i < kBucketsPerThread; ++i) {
    T* sum = &sums[bucket_of_thread(i)];
    mass[i] = __ldcg(sum);
    *sum = 0;
  }
}

template <typename T>
__device__ void clear(T* shared) {
  for (int32_t bucket = thread_index(); bucket < kBuckets; bucket += kSampleThreads) {
    shared[bucket] = 0;
  }
}

}  // namespace kipp::cuda
