// The rows of the embedding table that a step's tokens begin with.
#pragma once

#include <cstdint>

#include "backend/cuda/launch.h"

namespace kipp::cuda {

// out[t][c] = table[id(t)][c], widened exactly. id(t) is sampled[source[t]] where source[t] >= 0 (a token that an
// earlier step drew and that never left the device), else ids[t]. All pointers are to device memory.
struct EmbeddingArgs {
  const uint16_t* table;   // [vocab][hidden] bf16
  const int32_t* ids;      // [num_tokens], each in [0, vocab)
  const int32_t* source;   // [num_tokens]
  const int32_t* sampled;  // ids by head row of the step before; read only where a source names it
  float* out;              // [num_tokens][hidden]
  int32_t num_tokens, hidden;
};

cudaError_t embedding(const EmbeddingArgs& args, const LaunchContext& context);

}  // namespace kipp::cuda
