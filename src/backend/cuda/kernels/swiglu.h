// The gated activation where the product before it left partial sums.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "backend/cuda/launch.h"

namespace kipp::cuda {

// silu(gate) · up · kSwigluScale as FP16 terms; gate and up interleaved by eight (weight_tiles: RowPlace).
struct SwigluArgs {
  const float* gate_up;  // [num_partials][..][gate_up_stride]
  int64_t partial_stride;
  int32_t num_partials;
  int32_t gate_up_stride;
  __half* high;  // [num_rows][stride]
  __half* low;   // likewise
  int32_t num_rows, width, stride;
};

cudaError_t swiglu(const SwigluArgs& args, const LaunchContext& context);

// out[r][c] = Σ_p partials[p][r][c], in order: logits whose product left partial sums.
struct SumPartialsArgs {
  const float* partials;
  int64_t partial_stride;
  int32_t num_partials;
  float* out;     // [num_rows · width]
  int64_t count;  // num_rows · width
};
cudaError_t sum_partials(const SumPartialsArgs& args, const LaunchContext& context);

}  // namespace kipp::cuda
