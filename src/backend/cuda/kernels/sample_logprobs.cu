// Log-probabilities of the raw logits, after the draw: the sum over the row, then the best ids.
#include "backend/cuda/kernels/sample_kernels.h"
#include "backend/cuda/kernels/sample_row.cuh"
#include "sampling/logprobs.h"

namespace kipp::cuda {
namespace {

__device__ bool wants_logprobs(const SampleRowView& row, int32_t least) {
  return row.params->num_logprobs >= least && row.result->id >= 0;
}

__device__ float raw_best_of(const SampleScratch& scratch) {
  const uint32_t order = scratch.raw_best;
  return float_of_bits((order & 0x80000000U) != 0U ? (order & 0x7FFFFFFFU) : ~order);
}

__device__ int32_t num_top(const SampleRowView& row) {
  return smaller(row.params->num_logprobs, row.num_tokens);
}

__device__ void finish_sum(const SampleRowView& row, bool counted) {
  SampleScratch& scratch = *row.scratch;
  const uint64_t sum = block_scan(threadIdx.x < gridDim.x ? __ldcg(&scratch.above[threadIdx.x]) : uint64_t{0}).total;
  if (threadIdx.x == 0) {
    scratch.log_sum = log_of_sum(sum);
    const LogSoftmax log_softmax{raw_best_of(scratch), scratch.log_sum};
    row.result->logprob = log_softmax(row.logits[row.result->id]);
  }
  if (counted) {
    uint64_t mass[kBucketsPerThread];
    take(scratch.counts, mass);
    const Place place = find_place(mass, block_scan(sum_of(mass)), static_cast<uint64_t>(num_top(row)));
    if (threadIdx.x == 0) {
      scratch.place = place;
    }
  }
}

__global__ void __launch_bounds__(kSampleThreads) sum_kernel(SampleKernelArgs args) {
  __shared__ uint32_t counts[kBuckets];
  wait_for_previous();
  start_next();
  const SampleRowView row = this_row(args);
  if (!wants_logprobs(row, 0)) {
    return;
  }
  const bool counted = row.params->num_logprobs > 0;
  clear(counts);
  __syncthreads();
  const float best = raw_best_of(*row.scratch);
  uint64_t sum = 0;
  for_each_word(reinterpret_cast<const uint32_t*>(row.logits), row.begin, row.end, [&](int32_t, uint32_t word) {
    const float logit = float_of_bits(word);
    sum += weight_of(saturate(best - logit), kUnitTemperature);
    if (counted) {
      atomicAdd(&counts[bucket_of(order_key(logit))], 1U);
    }
  });
  sum = block_scan(sum).total;
  if (threadIdx.x == 0) {
    row.scratch->above[blockIdx.x] = sum;
  }
  flush(counts, row.scratch->counts);
  if (is_last_block(&row.scratch->num_finished)) {
    finish_sum(row, counted);
  }
}

// The best of this thread's part of the listed ids that comes after `last`; 0: none.
__device__ uint64_t best_after(const SampleRowView& row, uint32_t size, uint64_t last) {
  uint64_t best = 0;
  for (uint32_t i = threadIdx.x; i < size; i += kSampleThreads) {
    const auto id = static_cast<int32_t>(__ldcg(&row.list[i]));
    const uint64_t here = packed(order_key(row.logits[id]), id);
    best = here < last ? larger(best, here) : best;
  }
  return best;
}

__device__ void write_top(const SampleRowView& row) {
  SampleScratch& scratch = *row.scratch;
  const uint32_t size = __ldcg(&scratch.list_size);
  const LogSoftmax log_softmax{raw_best_of(scratch), scratch.log_sum};
  uint64_t mine = best_after(row, size, kBroken);
  for (int32_t i = 0; i < num_top(row); ++i) {
    const uint64_t best = block_max(mine);
    if (mine == best) {  // one thread's, since no two ids are equal
      const int32_t id = id_of_packed(best);
      row.result->top_ids[i] = id;
      row.result->top_logprobs[i] = log_softmax(row.logits[id]);
      mine = best_after(row, size, best);
    }
  }
  if (threadIdx.x == 0) {
    scratch.list_size = 0;
  }
}

// Lists all ids from the bucket on that the last of the best lies in.
__global__ void __launch_bounds__(kSampleThreads) top_kernel(SampleKernelArgs args) {
  wait_for_previous();
  start_next();
  const SampleRowView row = this_row(args);
  if (!wants_logprobs(row, 1)) {
    return;
  }
  const int32_t bucket = row.scratch->place.bucket;
  for_each_word(reinterpret_cast<const uint32_t*>(row.logits), row.begin, row.end, [&](int32_t id, uint32_t word) {
    if (bucket_of(order_key(float_of_bits(word))) >= bucket) {
      row.list[atomicAdd(&row.scratch->list_size, 1U)] = static_cast<uint32_t>(id);
    }
  });
  if (is_last_block(&row.scratch->num_finished)) {
    write_top(row);
  }
}

}  // namespace

cudaError_t launch_sum_logprobs(const SampleKernelArgs& args, const LaunchContext& context, const LaunchShape& shape) {
  return launch(sum_kernel, shape, context, args);
}
cudaError_t launch_top_logprobs(const SampleKernelArgs& args, const LaunchContext& context, const LaunchShape& shape) {
  return launch(top_kernel, shape, context, args);
}

}  // namespace kipp::cuda
