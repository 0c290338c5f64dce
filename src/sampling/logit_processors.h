// The processors that come before temperature: padding mask, bans and bias, grammar mask, penalties.
#pragma once

#include <span>

#include "kipp/error.h"
#include "kipp/sampling.h"

namespace kipp {

// values: gets the processed logits of the ids below its size; an excluded id (banned, or not in the mask) holds
// -infinity and every other value is finite. logits must be finite there, params valid. Errors: kInvalidArgument (an id
// of prompt_ids or output_ids outside the vocabulary, with its index).
Result<void> process_logits(std::span<const float> logits, const SampleRequest& request, std::span<float> values);

}  // namespace kipp
