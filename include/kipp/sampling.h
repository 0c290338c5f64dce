// Sampling parameters, shared by the command line, the server and every backend's sampler.
// Order: padding mask, bans and bias, grammar mask, penalties, temperature, top_k, top_p, min_p, draw.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kipp/error.h"

namespace kipp {

struct SamplingParams {
  float temperature = 1.0F;         // >= 0; 0 is greedy, whatever the other fields say
  int32_t top_k = 0;                // >= 0; 0 is off
  float top_p = 1.0F;               // [0, 1]; 0 keeps one token, 1 is off
  float min_p = 0.0F;               // [0, 1]; 0 is off
  float repetition_penalty = 1.0F;  // > 0; 1 is off; over prompt and output (Keskar et al. 2019, CTRL)
  float presence_penalty = 0.0F;    // [-2, 2]; 0 is off; over the output
  float frequency_penalty = 0.0F;   // [-2, 2]; 0 is off; over the output
  // (id, bias in [-100, 100]); -infinity bans the id. Ids without a token are refused: they are never sampled.
  std::vector<std::pair<int32_t, float>> logit_bias = {};
};

// One draw. The same struct serves the host sampler, a backend's SampleRow and Session::sample.
struct SampleRequest {
  const SamplingParams* params = nullptr;
  uint64_t seed = 0;
  int32_t choice = 0;              // index of the choice of a request with n > 1
  int32_t position = 0;            // absolute position of the token to be drawn; Session::sample sets it itself
  int32_t num_logprobs = -1;       // -1: no log-probabilities; 0: the chosen token's; n <= 20: also the n best
  const uint32_t* mask = nullptr;  // [4748] one bit an id (ceil(151,936 / 32)), set: allowed; or null
  std::span<const int32_t> prompt_ids = {};  // for repetition_penalty
  std::span<const int32_t> output_ids = {};  // for all penalties
};

// What a sampler chose. Log-probabilities are those of the raw logits over the tokens (padding rows left out).
struct SampledToken {
  int32_t id = -1;
  float logprob = 0.0F;
  std::vector<std::pair<int32_t, float>> top_logprobs = {};  // [num_logprobs] descending, ties by ascending id
};

// Checks ranges and ids. Errors: kInvalidArgument naming the field, the range and the value found.
// num_tokens: ids at and above it are padding rows of the head (151,669).
Result<void> validate(const SamplingParams& params, int32_t num_tokens);

}  // namespace kipp
