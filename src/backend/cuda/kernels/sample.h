// The sampler on the device: the same id and log-probabilities as sample_token (sampling/sampler.h), bit for bit, since
// both compute with sampling/sampling_math.h and sums of integers have no order (docs/sampling.md).
//
// A row is cut into chunks, a block for each; the last block of a row to finish a kernel combines what all have found.
// Where a cut lies is found by a histogram over buckets of 1/16 of a logit, then exactly among the keys of one bucket:
//   prepare   processed logits as order keys, the best of them, the bucket where top_k ends
//   weigh     where exactly top_k ends; weights by bucket, and so the bucket where top_p ends
//   refine    where exactly top_p ends
//   draw      the chunk that the random point falls into, then its id
//   log-probabilities (sample_logprobs.cu): the sum over the raw row, then the best ids
// A row that needs nothing of a kernel leaves it at once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/sample_params.h"
#include "backend/cuda/launch.h"

namespace kipp::cuda {

// Scratch for num_rows rows at a time; a call with more rows takes several turns. One call at a time may use it: calls
// on one stream follow each other. Every call leaves the counters in it as it found them, so a graph can be replayed.
struct SampleWorkspace {
  void* data;  // 128-byte aligned
  int32_t num_rows;
};

size_t sample_workspace_bytes(int32_t num_rows, int32_t num_tokens);
// Once, before the first use.
cudaError_t clear_sample_workspace(const SampleWorkspace& workspace, int32_t num_tokens, cudaStream_t stream);

// All pointers are to device memory.
struct SampleArgs {
  const float* logits;  // [num_rows][stride], 16-byte aligned, stride a multiple of 4; only read, below num_tokens
  int64_t stride;
  int32_t num_rows, num_tokens;
  SampleResult* results;  // [num_rows]; fields that a row did not ask for keep their values
  int32_t* ids;           // [num_rows] the id, or 0 where it is -1: always a valid input for the next step
  SampleWorkspace workspace;
};

// The rows' requests (SampleRows::write), and the union of what they need.
struct SampleBatch {
  const SampleParams* params;  // [num_rows]
  const LogitEdit* edits;
  const uint32_t* masks;  // [..][mask_words]
  int32_t mask_words;
  bool cuts, cuts_by_weight, draws, logprobs, top_logprobs;
};

// The best token of every row, without any option: no parameters, so a captured graph can hold it.
cudaError_t sample_greedy(const SampleArgs& args, const LaunchContext& context);
cudaError_t sample(const SampleArgs& args, const SampleBatch& batch, const LaunchContext& context);

}  // namespace kipp::cuda
