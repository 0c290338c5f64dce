// The checks of the contract that every backend shares: nothing that a caller passes may lead a kernel out of bounds.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "backend/backend.h"
#include "kipp/error.h"

namespace kipp {

// num_previous_rows: head rows of the previous step whose sampled ids an input may name; 0 if nothing was sampled.
// Errors: kInvalidArgument naming the span, token or row, what was expected and what was found.
Result<void> validate_batch(const Batch& batch, const Limits& limits, int32_t num_blocks, int32_t vocab,
                            int32_t num_previous_rows);

// What Backend::load takes. backend: for the message. Errors: kInvalidArgument.
Result<void> validate_limits(std::string_view backend, const Limits& limits, int32_t num_blocks);

// What Backend::evaluate_stateless takes. Errors: kInvalidArgument (empty, a bad id, with its index), kCapacity.
Result<void> validate_stateless(std::span<const int32_t> tokens, const Limits& limits, int32_t vocab);

// A block of the pool, and what Backend::copy_blocks takes. Errors: kInvalidArgument.
Result<void> validate_block(int32_t block, int32_t num_blocks);
Result<void> validate_block_copies(std::span<const int32_t> from, std::span<const int32_t> to, int32_t num_blocks);

}  // namespace kipp
