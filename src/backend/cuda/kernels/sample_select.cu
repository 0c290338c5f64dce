// Where top_k and top_p end exactly, and weights by bucket on the way: the same cuts as sampling/selection.cc's.
#include "backend/cuda/kernels/sample_kernels.h"
#include "backend/cuda/kernels/sample_row.cuh"

namespace kipp::cuda {
namespace {

// The keys of the bucket that a cut lies in.
struct KeyList {
  const uint32_t* keys;
  uint32_t size;
};

template <typename Visit>
__device__ void for_each_listed(const KeyList& list, Visit visit) {
  for (uint32_t i = threadIdx.x; i < list.size; i += kSampleThreads) {
    visit(__ldcg(&list.keys[i]));
  }
}

// The usual case, a key for each thread: every thread sums what is above its own, and the one that has the cut knows
// it.
template <typename MassOf>
__device__ Cut find_cut_of_few(const KeyList& list, uint64_t need, uint64_t* shared, MassOf mass_of) {
  __shared__ Cut cut;
  uint64_t* masses = shared;
  auto* keys = reinterpret_cast<uint32_t*>(shared + kSampleThreads);
  const bool has_key = threadIdx.x < list.size;
  const uint32_t key = has_key ? __ldcg(&list.keys[threadIdx.x]) : 0;
  const uint64_t mass = has_key ? mass_of(key) : 0;
  keys[threadIdx.x] = key;
  masses[threadIdx.x] = mass;
  __syncthreads();
  if (has_key) {
    uint64_t above = 0;
    uint64_t equal = 0;
    for (uint32_t i = 0; i < list.size; ++i) {
      above += keys[i] > key ? masses[i] : 0;
      equal += keys[i] == key ? masses[i] : 0;
    }
    if (above < need && need <= above + equal) {
      cut = Cut{key, (need - above + mass - 1) / mass};  // the same from each of its ties
    }
  }
  __syncthreads();
  return cut;
}

// Any number of keys: a radix descent whose digits divide what is left of their range, so that it takes one step for
// every factor of 2048 in it and none if all keys are equal.
template <typename MassOf>
__device__ Cut find_cut_of_many(const KeyList& list, uint64_t need, uint64_t* histogram, MassOf mass_of) {
  uint32_t high = 0;
  uint32_t low_complement = 0;
  for_each_listed(list, [&](uint32_t key) {
    high = larger(high, key);
    low_complement = larger(low_complement, ~key);
  });
  high = block_max(high);
  uint32_t low = ~block_max(low_complement);
  while (low < high) {
    constexpr int32_t kDigitBits = 11;
    const int32_t shift = larger(32 - __clz(static_cast<int32_t>(high - low)) - kDigitBits, 0);
    clear(histogram);
    __syncthreads();
    for_each_listed(list, [&](uint32_t key) {
      if (low <= key && key <= high) {
        add_shared(&histogram[(key - low) >> shift], mass_of(key));
      }
    });
    __syncthreads();
    uint64_t mass[kBucketsPerThread];
    for (int32_t i = 0; i < kBucketsPerThread; ++i) {
      mass[i] = histogram[bucket_of_thread(i)];
    }
    const Place place = find_place(mass, block_scan(sum_of(mass)), need);
    need = place.need;
    low += static_cast<uint32_t>(place.bucket) << shift;
    high = smaller(high, low + ((1U << shift) - 1));
  }
  const uint64_t mass_of_one = mass_of(low);
  return Cut{low, (need + mass_of_one - 1) / mass_of_one};
}

// Where the mass of the listed keys, from the largest down, reaches `need`. shared: [kBuckets]
template <typename MassOf>
__device__ Cut find_cut(const KeyList& list, uint64_t need, uint64_t* shared, MassOf mass_of) {
  return list.size <= kSampleThreads ? find_cut_of_few(list, need, shared, mass_of)
                                     : find_cut_of_many(list, need, shared, mass_of);
}

__device__ void append(const SampleRowView& row, uint32_t key) {
  row.list[atomicAdd(&row.scratch->list_size, 1U)] = key;
}

// In the row's last block only.
__device__ KeyList take_list(const SampleRowView& row) {
  const KeyList list{row.list, __ldcg(&row.scratch->list_size)};
  __syncthreads();
  if (threadIdx.x == 0) {
    row.scratch->list_size = 0;
  }
  return list;
}

// What the listed keys weigh of which `cut` keeps some.
__device__ uint64_t kept_weight(const SampleRowView& row, const KeyList& list, Cut cut, float best) {
  uint64_t sum = 0;
  for_each_listed(list, [&](uint32_t key) { sum += key > cut.key ? weight_of_key(row, best, key) : 0; });
  return block_scan(sum).total + cut.num_ties * weight_of_key(row, best, cut.key);
}

// The bucket that top_p ends in. bucket_of_cut's weight is replaced by what top_k keeps of it.
__device__ Place place_top_p(const SampleRowView& row, int32_t bucket_of_cut, uint64_t kept) {
  uint64_t mass[kBucketsPerThread];
  take(row.scratch->weights, mass);
  for (int32_t i = 0; i < kBucketsPerThread; ++i) {
    mass[i] = bucket_of_thread(i) == bucket_of_cut ? kept : mass[i];
  }
  const Scan scan = block_scan(sum_of(mass));
  return find_place(mass, scan, larger(share_of(scan.total, row.params->top_p), uint64_t{1}));
}

__device__ void finish_weigh(const SampleRowView& row, Place top_k, uint64_t* histogram) {
  SampleScratch& scratch = *row.scratch;
  const float best = logit_of_key(scratch.best_key);
  int32_t bucket_of_cut = -1;
  uint64_t kept = 0;
  if (scratch.cut_by_count) {
    const KeyList list = take_list(row);
    const Cut cut = find_cut(list, top_k.need, histogram, [](uint32_t) { return uint64_t{1}; });
    bucket_of_cut = top_k.bucket;
    kept = kept_weight(row, list, cut, best);
    if (threadIdx.x == 0) {
      scratch.cut = cut;
    }
  }
  if (row.params->top_p < kTopPOff) {
    const Place place = place_top_p(row, bucket_of_cut, kept);
    if (threadIdx.x == 0) {
      scratch.place = place;
    }
  }
}

// Counts are exact from prepare on; here the keys of top_k's last bucket are gathered, and with top_p everything that
// top_k may keep is weighed.
__global__ void __launch_bounds__(kSampleThreads) weigh_kernel(SampleKernelArgs args) {
  __shared__ uint64_t weights[kBuckets];
  wait_for_previous();
  start_next();
  const SampleRowView row = this_row(args);
  const SampleScratch& scratch = *row.scratch;
  const bool weighed = row.params->top_p < kTopPOff;
  const bool listed = scratch.cut_by_count;
  if (row.params->greedy != 0 || scratch.best_key == 0 || !(weighed || listed)) {
    return;
  }
  clear(weights);
  __syncthreads();
  const Place top_k = scratch.place;  // bucket 0 without a cut
  const float best = logit_of_key(scratch.best_key);
  for_each_key(row, [&](int32_t, uint32_t key) {
    const int32_t bucket = bucket_of(key);
    if (listed && bucket == top_k.bucket) {
      append(row, key);
    }
    if (weighed && bucket >= top_k.bucket) {
      if (const uint64_t weight = weight_of_key(row, best, key); weight != 0) {
        add_shared(&weights[bucket], weight);
      }
    }
  });
  __syncthreads();
  flush(weights, row.scratch->weights);
  if (is_last_block(&row.scratch->num_finished)) {
    finish_weigh(row, top_k, weights);
  }
}

// Of the keys in the bucket where top_p ends: those below top_k's cut come last and are never reached.
__global__ void __launch_bounds__(kSampleThreads) refine_kernel(SampleKernelArgs args) {
  __shared__ uint64_t histogram[kBuckets];
  wait_for_previous();
  start_next();
  const SampleRowView row = this_row(args);
  if (row.params->greedy != 0 || row.scratch->best_key == 0 || row.params->top_p == kTopPOff) {
    return;
  }
  const Place top_p = row.scratch->place;
  for_each_key(row, [&](int32_t, uint32_t key) {
    if (bucket_of(key) == top_p.bucket) {
      append(row, key);
    }
  });
  if (is_last_block(&row.scratch->num_finished)) {
    const float best = logit_of_key(row.scratch->best_key);
    const Cut cut =
        find_cut(take_list(row), top_p.need, histogram, [&](uint32_t key) { return weight_of_key(row, best, key); });
    if (threadIdx.x == 0) {
      row.scratch->cut = cut;
    }
  }
}

}  // namespace

cudaError_t launch_weigh(const SampleKernelArgs& args, const LaunchContext& context, const LaunchShape& shape) {
  return launch(weigh_kernel, shape, context, args);
}
cudaError_t launch_refine(const SampleKernelArgs& args, const LaunchContext& context, const LaunchShape& shape) {
  return launch(refine_kernel, shape, context, args);
}

}  // namespace kipp::cuda
