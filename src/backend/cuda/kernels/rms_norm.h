// The residual stream takes a block's output in and is normalised for the next block, in one pass.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "backend/cuda/launch.h"

namespace kipp::cuda {

// For output row r, with s = rows == null ? r : rows[r]: x = residual[s] + Σ_p delta[p][s] (in order of p), and
// (x · (1 / sqrt(mean(x²) + epsilon))) · weight · scale as FP16 terms. With store_residual x is the new residual[s].
struct ResidualNormArgs {
  float* residual;     // [..][hidden]
  const float* delta;  // [num_partials][..][hidden], or null
  int64_t partial_stride;
  int32_t num_partials;
  bool store_residual;
  const int32_t* rows;     // [num_rows] or null
  const uint16_t* weight;  // [hidden] bf16
  float epsilon;
  float scale;   // a power of two
  __half* high;  // [num_rows][stride]
  __half* low;   // likewise
  int32_t num_rows, hidden, stride;
};

cudaError_t residual_norm(const ResidualNormArgs& args, const LaunchContext& context);

}  // namespace kipp::cuda
