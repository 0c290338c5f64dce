// Causal attention of prompt rows: spans of many tokens, over the paged KV of their sequences.
#pragma once

#include <cstdint>

#include "backend/cuda/kernels/paged_kv.h"
#include "backend/cuda/launch.h"

namespace kipp::cuda {

// Up to prompt_tile_tokens() neighbouring tokens of one span: what one block computes for one kv head. Tokens are rows
// first_row, first_row + 1, ... of q and of the output, at positions first_position, first_position + 1, ...
struct PromptTile {
  int32_t first_row, first_position, num_tokens, sequence;
};

// The most tokens of a tile: those whose heads of one kv head fill 128 rows of a matrix product.
constexpr int32_t prompt_tile_tokens(int32_t num_query_heads) {
  return 128 * kNumKvHeads / num_query_heads;
}

// For every row r of a tile and query head h, with kv head h / group and all positions p up to the row's own:
//   high[r][h] = fp16(kAttentionScale * sum_p softmax_p(q[r][h] . k[p] / sqrt(head_dim)) v[p]).
// q, k, v and the weights enter as FP16, sums are FP32. A row's bits depend on its q, its KV and its position alone:
// how spans are cut into tiles does not matter. Blocks start in the order of `tiles`: those with most positions go
// first.
struct AttentionPromptArgs {
  PagedKv kv;
  const float* q;                      // [num_rows][num_query_heads][kHeadDim], rotated, not scaled; 16-byte aligned
  const PromptTile* tiles;             // [num_tiles], on the device
  uint16_t* high;                      // [num_rows][num_query_heads * kHeadDim] fp16; 16-byte aligned
  int32_t num_tiles, num_query_heads;  // 16, 32, 40 or 64 heads
};

// cudaErrorInvalidValue for a number of heads that no checkpoint has.
cudaError_t attention_prompt(const AttentionPromptArgs& args, const LaunchContext& context);

}  // namespace kipp::cuda
