// What the device sampler reads and writes for each row: plain structs that sample_rows.cc fills and the kernels read.
#pragma once

#include <cstdint>

#include "sampling/sampling_math.h"

namespace kipp::cuda {

inline constexpr int32_t kMaxTopLogprobs = 20;
inline constexpr uint64_t kTopPOff = 1ULL << 32;
inline constexpr int32_t kNoMask = -1;

// A request in the integers that the arithmetic works with (sampling/temperature.h).
struct SampleParams {
  InverseTemperature inverse;
  uint64_t random;       // the draw's 64 bits
  uint64_t top_p;        // share with 32 fractional bits; kTopPOff: all
  uint64_t min_weight;   // what min_p keeps; 0: all
  int32_t top_k;         // 0: all
  int32_t greedy;        // 1: the best token; nothing above is read
  int32_t num_logprobs;  // as SampleRequest
  int32_t edited;        // 1: has edits or a mask; keys are made once and read by every later kernel
  int32_t mask;          // index of a mask, or kNoMask
  int32_t first_edit;    // the row's edits, ascending by id
  int32_t num_edits;
  float repetition_penalty, presence_penalty, frequency_penalty;
};

// Bias and history of one id of one row; ids without either have none.
struct LogitEdit {
  int32_t id;
  float bias;            // -infinity: banned; 0: none
  int32_t output_count;  // occurrences in the output; 0 where no penalty reads it
  int32_t repeated;      // 1: the repetition penalty applies
};

struct SampleResult {
  int32_t id;  // -1: a logit was not finite (or, which the host excludes, nothing was left)
  float logprob;
  int32_t top_ids[kMaxTopLogprobs];  // min(num_logprobs, num_tokens) of them
  float top_logprobs[kMaxTopLogprobs];
};

}  // namespace kipp::cuda
