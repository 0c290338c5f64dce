// The host sampler: one draw from one row of logits. A pure function of its arguments; docs/sampling.md has the
// algorithm.
#pragma once

#include <cstdint>
#include <span>

#include "kipp/error.h"
#include "kipp/sampling.h"

namespace kipp {

// logits: [vocab] raw, of which only ids below num_tokens are read.
// Errors: kInvalidArgument (a parameter or id out of range; every token excluded), kNumerical (a logit is not finite).
Result<SampledToken> sample_token(std::span<const float> logits, const SampleRequest& request, int32_t num_tokens);

}  // namespace kipp
