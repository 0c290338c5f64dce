// NaN in the KV memory that nothing may read.
#pragma once

#include <cstdint>

#include "kipp/engine.h"
#include "kipp/error.h"

namespace kipp::gates {

// Every block that `session` does not hold, and in its last block the positions from its length on. No other session of
// the model may hold anything. num_blocks: of the model's pool. Errors: those of Backend::read_block and write_block.
Result<void> poison_unused(Model& model, int32_t num_blocks, const Session& session);

}  // namespace kipp::gates
