// Causal attention of generated rows: one query token each, over the paged KV of its sequence.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/paged_kv.h"
#include "backend/cuda/kernels/projected_heads.h"
#include "backend/cuda/launch.h"

namespace kipp::cuda {

// For every row r and query head h, with kv head h / group and all positions p <= positions[r]:
//   s = kAttentionScale * sum_p softmax_p(q[r][h] . k[p] / sqrt(head_dim)) v[p],  high = fp16(s), low = fp16(s - high).
// FP32 quality: q and the weights are split into two FP16 terms each, and sums are FP32. A row's bits depend on its
// q, its KV and its position alone. A row whose position is negative is left out: nothing of it is read or written.
// Where `settled` is given, KV below position settled[r] of row r's sequence is fetched before the kernels that precede
// this one have ended. It, `settled`, `positions`, `sequences` and the block tables must have been written before the
// last launch in this stream that did not overlap the one before it.
//
// With `heads` it also does what query_key_value() does, bit for bit, so that q is not read and the K and V of position
// positions[r] are written to the pool: then no two rows may be of one sequence.
struct AttentionGeneratedArgs {
  PagedKv kv;
  const float* q;            // [num_rows][num_query_heads][kHeadDim], rotated, not scaled; 16-byte aligned
  const int32_t* positions;  // [num_rows]; each < max_context
  const int32_t* sequences;  // [num_rows]; rows of the block tables
  const int32_t* settled;    // [num_rows] or null, see above
  uint16_t* high;            // [num_rows][num_query_heads * kHeadDim] fp16; 8-byte aligned, as low is
  uint16_t* low;
  void* workspace;  // attention_generated_workspace_bytes(); of one launch at a time
  int32_t workspace_rows;
  int32_t num_rows, num_query_heads;  // 16, 32, 40 or 64 heads
  int32_t max_context;                // sizes the grid (of a graph, say), never the result
  ProjectedHeads heads = {};          // sums null: q is given
  uint16_t* new_kv = nullptr;         // kv.pool, to write to; only with `heads`
};

// Bytes for launches of up to `max_rows` rows (their workspace_rows) and contexts of up to `max_context`. The workspace
// is zeroed once, before the first launch; each launch leaves it as the next needs it. 256-byte aligned.
size_t attention_generated_workspace_bytes(int32_t max_rows, int32_t num_query_heads, int32_t max_context);

// cudaErrorInvalidValue for a number of heads that no checkpoint has.
cudaError_t attention_generated(const AttentionGeneratedArgs& args, const LaunchContext& context);

}  // namespace kipp::cuda
