// The processors that come before temperature: padding mask, bans and bias, grammar mask, penalties.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kipp/error.h"
#include "kipp/sampling.h"

namespace kipp {

// The processed logits of ids below num_tokens; an excluded id (banned, or not in the mask) holds -infinity and every
// other value is finite. logits must be finite below num_tokens, params valid.
// Errors: kInvalidArgument (an id of prompt_ids or output_ids outside the vocabulary, with its index).
Result<std::vector<float>> process_logits(std::span<const float> logits, const SampleRequest& request,
                                          int32_t num_tokens);

}  // namespace kipp
