// What every sampler checks and derives of a request before it looks at a logit: the host's and the devices' agree.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kipp/error.h"
#include "kipp/sampling.h"

namespace kipp {

inline constexpr int32_t kMaxLogprobs = 20;

// num_logits: of one row, padding rows included.
// Errors: kInvalidArgument (num_tokens, a parameter, position, choice or num_logprobs out of range).
Result<void> check_request(const SampleRequest& request, size_t num_logits, int32_t num_tokens);

bool has_repetition_penalty(const SamplingParams& params);
bool has_count_penalty(const SamplingParams& params);  // presence, frequency

// Checks the ids that a penalty reads; without a penalty none is looked at.
// Errors: kInvalidArgument (an id of output_ids or prompt_ids outside the vocabulary, with its index).
Result<void> check_history(const SampleRequest& request, size_t vocab);

// Whether bans and grammar mask leave an id below num_tokens. The request has passed check_request.
bool leaves_a_token(const SampleRequest& request, int32_t num_tokens);
tl::unexpected<Error> nothing_to_sample();

// The 64 random bits of the request's draw.
uint64_t random_of(const SampleRequest& request);

}  // namespace kipp
