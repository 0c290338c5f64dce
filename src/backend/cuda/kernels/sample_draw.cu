// The draw: the kept weights end to end in ascending order of ids, and the id whose share holds the random point.
#include "backend/cuda/kernels/sample_kernels.h"
#include "backend/cuda/kernels/sample_row.cuh"

namespace kipp::cuda {
namespace {

// What is kept, id by id: all above the cut, of the ties the first, and of both only what weighs enough for min_p.
struct Kept {
  const SampleRowView& row;
  Cut cut;
  float best;

  __device__ Kept(const SampleRowView& row_in)
      : row(row_in), cut(row_in.scratch->cut), best(logit_of_key(row_in.scratch->best_key)) {}

  __device__ uint64_t weight(uint32_t key) const {
    const uint64_t weight = weight_of_key(row, best, key);
    return weight < row.params->min_weight ? 0 : weight;
  }
  __device__ uint64_t weight_above(uint32_t key) const { return key > cut.key ? weight(key) : 0; }
  __device__ bool is_tie(uint32_t key) const { return key == cut.key && cut.num_ties > 0; }
  __device__ uint64_t weight_of_tie() const { return cut.num_ties > 0 ? weight(cut.key) : 0; }
  // Of `ties` ties after `before` others.
  __device__ uint64_t kept_ties(uint64_t before, uint64_t ties) const {
    return before >= cut.num_ties ? 0 : smaller(ties, cut.num_ties - before);
  }
};

// The ids from begin to end, and what the draw knows of those before begin.
struct Stretch {
  int32_t begin, end;
  uint64_t ties_before;
  uint64_t point;  // relative to the first weight of the stretch
};

// Finds the chunk that the point falls into. In the row's last block only; kMaxChunks <= kSampleThreads.
__device__ Stretch find_chunk(const Kept& kept) {
  __shared__ Stretch found;
  const SampleScratch& scratch = *kept.row.scratch;
  const bool has_chunk = threadIdx.x < gridDim.x;
  const uint64_t above = has_chunk ? __ldcg(&scratch.above[threadIdx.x]) : 0;
  const uint64_t ties = has_chunk ? __ldcg(&scratch.ties[threadIdx.x]) : 0;
  const uint64_t ties_before = block_scan(ties).before;
  const uint64_t weight = above + kept.kept_ties(ties_before, ties) * kept.weight_of_tie();
  const Scan scan = block_scan(weight);
  const uint64_t point = multiply_high(kept.row.params->random, scan.total);
  if (scan.before <= point && point < scan.before + weight) {
    const int32_t chunk = chunk_size(kept.row.num_tokens);
    const int32_t begin = thread_index() * chunk;
    found = {begin, smaller(begin + chunk, kept.row.num_tokens), ties_before, point - scan.before};
  }
  __syncthreads();
  return found;
}

// Walks the ids of a stretch and returns the one that holds the point, or -1.
__device__ int32_t walk(const Kept& kept, const Stretch& stretch) {
  uint64_t end = 0;
  uint64_t ties = stretch.ties_before;
  for (int32_t id = stretch.begin; id < stretch.end; ++id) {
    const uint32_t key = key_at(kept.row, id);
    if (kept.is_tie(key)) {
      end += kept.kept_ties(ties++, 1) * kept.weight_of_tie();
    } else {
      end += kept.weight_above(key);
    }
    if (stretch.point < end) {
      return id;
    }
  }
  return -1;
}

// Every thread sums a part of the chunk; the one whose part holds the point walks through it.
__device__ void draw_from(const Kept& kept, const Stretch& chunk) {
  const int32_t part = (chunk.end - chunk.begin + kSampleThreads - 1) / kSampleThreads;
  const int32_t begin = smaller(chunk.begin + thread_index() * part, chunk.end);
  const int32_t end = smaller(begin + part, chunk.end);
  uint64_t above = 0;
  uint64_t ties = 0;
  for (int32_t id = begin; id < end; ++id) {
    const uint32_t key = key_at(kept.row, id);
    above += kept.weight_above(key);
    ties += kept.is_tie(key) ? 1 : 0;
  }
  const uint64_t ties_before = chunk.ties_before + block_scan(ties).before;
  const uint64_t weight = above + kept.kept_ties(ties_before, ties) * kept.weight_of_tie();
  const Scan scan = block_scan(weight);
  if (scan.before <= chunk.point && chunk.point < scan.before + weight) {
    const int32_t id = walk(kept, {begin, end, ties_before, chunk.point - scan.before});
    kept.row.result->id = id;
    *kept.row.id = larger(id, 0);
  }
}

__global__ void __launch_bounds__(kSampleThreads) draw_kernel(SampleKernelArgs args) {
  wait_for_previous();
  start_next();
  const SampleRowView row = this_row(args);
  if (row.params->greedy != 0 || row.scratch->best_key == 0) {
    return;
  }
  const Kept kept(row);
  uint64_t above = 0;
  uint64_t ties = 0;
  for_each_key(row, [&](int32_t, uint32_t key) {
    above += kept.weight_above(key);
    ties += kept.is_tie(key) ? 1 : 0;
  });
  above = block_scan(above).total;
  ties = block_scan(ties).total;
  if (threadIdx.x == 0) {
    row.scratch->above[blockIdx.x] = above;
    row.scratch->ties[blockIdx.x] = ties;
  }
  if (is_last_block(&row.scratch->num_finished)) {
    draw_from(kept, find_chunk(kept));
  }
}

}  // namespace

cudaError_t launch_draw(const SampleKernelArgs& args, const LaunchContext& context, const LaunchShape& shape) {
  return launch(draw_kernel, shape, context, args);
}

}  // namespace kipp::cuda
