// The checks of Backend::forward that every backend shares: nothing in a batch may lead a kernel out of bounds.
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "kipp/error.h"

namespace kipp {

// num_previous_rows: head rows of the previous step whose sampled ids an input may name; 0 if nothing was sampled.
// Errors: kInvalidArgument naming the span, token or row, what was expected and what was found.
Result<void> validate_batch(const Batch& batch, const Limits& limits, int32_t num_blocks, int32_t vocab,
                            int32_t num_previous_rows);

}  // namespace kipp
