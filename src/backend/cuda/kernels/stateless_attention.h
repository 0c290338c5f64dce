// Attention over a whole prompt whose K and V are plain arrays: the gates' other side, with no block, table or
// position.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "backend/cuda/kernels/projected_heads.h"
#include "backend/cuda/launch.h"

namespace kipp::cuda {

// K and V as the pool would hold them, widened: [num_rows][8][128] each.
struct SplitHeadsArgs {
  ProjectedHeads heads;
  float* q;  // [num_rows][num_query_heads][128]
  float* k;  // [num_rows][8][128]
  float* v;  // likewise
  int32_t num_rows, num_query_heads;
};
cudaError_t split_heads(const SplitHeadsArgs& args, const LaunchContext& context);

// Row t attends to rows 0 … t: high = fp16(kAttentionScale · Σ softmax · v), low = what it left over.
struct StatelessAttentionArgs {
  const float* q;
  const float* k;
  const float* v;
  float* scores;  // [num_rows][num_query_heads][num_rows] scratch
  __half* high;   // [num_rows][stride]
  __half* low;    // likewise
  int32_t num_rows, num_query_heads, stride;
};
cudaError_t stateless_attention(const StatelessAttentionArgs& args, const LaunchContext& context);

}  // namespace kipp::cuda
