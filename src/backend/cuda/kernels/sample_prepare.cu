// Every row's first kernel: which token is best, and for the rows that ask, edited keys and the bucket of top_k's end.
#include "backend/cuda/kernels/sample_kernels.h"
#include "backend/cuda/kernels/sample_row.cuh"

namespace kipp::cuda {
namespace {

// The order of floats without order_key's equal subnormals: log-probabilities are relative to the very largest logit.
__device__ uint32_t float_order(uint32_t bits) {
  return (bits & 0x80000000U) != 0U ? ~bits : (bits | 0x80000000U);
}

__device__ void write_id(const SampleRowView& row, uint64_t best) {
  const int32_t id = best == kBroken || key_of_packed(best) == 0 ? -1 : id_of_packed(best);
  row.result->id = id;
  *row.id = larger(id, 0);
}

// Combines what the blocks have found; in the row's last block only.
__device__ uint64_t best_of_chunks(const SampleScratch& scratch) {
  const bool has_chunk = threadIdx.x < gridDim.x;
  return block_max(has_chunk ? __ldcg(&scratch.best[threadIdx.x]) : uint64_t{0});
}

__global__ void __launch_bounds__(kSampleThreads) greedy_kernel(SampleKernelArgs args) {
  wait_for_previous();
  start_next();
  const SampleRowView row = this_row(args);
  uint64_t best = 0;
  for_each_word(reinterpret_cast<const uint32_t*>(row.logits), row.begin, row.end, [&](int32_t id, uint32_t word) {
    const float logit = float_of_bits(word);
    best = larger(best, is_finite(logit) ? packed(order_key(logit), id) : kBroken);
  });
  best = block_max(best);
  if (threadIdx.x == 0) {
    row.scratch->best[blockIdx.x] = best;
  }
  if (is_last_block(&row.scratch->num_finished)) {
    best = best_of_chunks(*row.scratch);
    if (threadIdx.x == 0) {
      write_id(row, best);
    }
  }
}

__device__ bool allowed_by_mask(const uint32_t* mask, int32_t id) {
  return mask == nullptr || ((mask[id / 32] >> (id % 32)) & 1U) != 0U;
}

// The key of a logit with bias and penalties, in the order of docs/sampling.md; 0: banned.
__device__ uint32_t edited_key(const SampleParams& params, const LogitEdit& edit, float logit) {
  if (!is_finite(edit.bias)) {
    return 0;
  }
  float value = saturate(logit + edit.bias);
  if (edit.repeated != 0) {
    value = repetition_penalised(value, params.repetition_penalty);
  }
  if (edit.output_count > 0) {
    value = count_penalised(value, params.presence_penalty, params.frequency_penalty, edit.output_count);
  }
  return order_key(value);
}

// The first of the row's edits whose id is not below `id`.
__device__ int32_t first_edit_from(const LogitEdit* edits, int32_t num_edits, int32_t id) {
  int32_t low = 0;
  int32_t high = num_edits;
  while (low < high) {
    const int32_t middle = (low + high) / 2;
    if (edits[middle].id < id) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Keys of the chunk: first of all ids as the mask has them, then again of those with edits.
__device__ void write_keys(const SampleRowView& row, const SampleBatch& batch) {
  const SampleParams& params = *row.params;
  const uint32_t* mask =
      params.mask == kNoMask ? nullptr : batch.masks + int64_t{params.mask} * int64_t{batch.mask_words};
  for_each_word(reinterpret_cast<const uint32_t*>(row.logits), row.begin, row.end, [&](int32_t id, uint32_t word) {
    row.keys[id] = allowed_by_mask(mask, id) ? order_key(float_of_bits(word)) : 0U;
  });
  __syncthreads();
  const LogitEdit* edits = batch.edits + params.first_edit;
  for (int32_t i = first_edit_from(edits, params.num_edits, row.begin) + thread_index(); i < params.num_edits;
       i += kSampleThreads) {
    const LogitEdit edit = edits[i];
    if (edit.id >= row.end) {
      break;
    }
    if (allowed_by_mask(mask, edit.id)) {
      row.keys[edit.id] = edited_key(params, edit, row.logits[edit.id]);
    }
  }
  __syncthreads();
}

// Where the top_k best end. All ids that are left, if they are no more than top_k.
__device__ void place_top_k(const SampleRowView& row) {
  uint64_t mass[kBucketsPerThread];
  take(row.scratch->counts, mass);
  const Scan scan = block_scan(sum_of(mass));
  const auto top_k = static_cast<uint64_t>(row.params->top_k);
  if (top_k < scan.total) {
    const Place place = find_place(mass, scan, top_k);
    if (threadIdx.x == 0) {
      row.scratch->cut_by_count = true;
      row.scratch->place = place;
    }
  }
}

__device__ void finish_prepare(const SampleRowView& row, bool counted) {
  SampleScratch& scratch = *row.scratch;
  const uint64_t best = best_of_chunks(scratch);
  const uint32_t raw = block_max(threadIdx.x < gridDim.x ? __ldcg(&scratch.raw[threadIdx.x]) : 0U);
  if (threadIdx.x == 0) {
    scratch.best_key = best == kBroken ? 0 : key_of_packed(best);
    scratch.raw_best = raw;
    scratch.cut_by_count = false;
    scratch.place = Place{0, 0};
    scratch.cut = Cut{0, 0};
    write_id(row, best);
  }
  __syncthreads();
  if (counted) {
    place_top_k(row);
  }
}

__global__ void __launch_bounds__(kSampleThreads) prepare_kernel(SampleKernelArgs args) {
  __shared__ uint32_t counts[kBuckets];
  wait_for_previous();
  start_next();
  const SampleRowView row = this_row(args);
  const bool edited = row.params->edited != 0;
  const bool counted = row.params->greedy == 0 && row.params->top_k > 0;
  if (counted) {
    clear(counts);
  }
  if (edited) {
    write_keys(row, args.batch);
  }
  __syncthreads();
  uint64_t best = 0;
  uint32_t raw = 0;
  for_each_word(reinterpret_cast<const uint32_t*>(row.logits), row.begin, row.end, [&](int32_t id, uint32_t word) {
    const float logit = float_of_bits(word);
    const uint32_t key = edited ? row.keys[id] : order_key(logit);
    best = larger(best, is_finite(logit) ? packed(key, id) : kBroken);
    raw = larger(raw, float_order(word));
    if (counted && key != 0) {
      atomicAdd(&counts[bucket_of(key)], 1U);
    }
  });
  best = block_max(best);
  raw = block_max(raw);
  if (threadIdx.x == 0) {
    row.scratch->best[blockIdx.x] = best;
    row.scratch->raw[blockIdx.x] = raw;
  }
  if (counted) {
    flush(counts, row.scratch->counts);  // complete since block_max
  }
  if (is_last_block(&row.scratch->num_finished)) {
    finish_prepare(row, counted);
  }
}

}  // namespace

cudaError_t launch_greedy(const SampleKernelArgs& args, const LaunchContext& context, const LaunchShape& shape) {
  return launch(greedy_kernel, shape, context, args);
}
cudaError_t launch_prepare(const SampleKernelArgs& args, const LaunchContext& context, const LaunchShape& shape) {
  return launch(prepare_kernel, shape, context, args);
}

}  // namespace kipp::cuda
