// The operator contract. Every backend exports the operators that it really runs behind this table, on host memory, so
// that tests/ops/<op>_test.cc checks each of them against the oracle's. Dense row-major unless a stride says otherwise;
// strides and counts are in elements. Outputs never alias inputs unless said. bf16 is a uint16_t holding the bits.
// Source of the maths: Transformers' modeling_qwen3.py, and the paper named at each operator.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/block_positions.h"
#include "model/weights.h"

namespace kipp {

// out[t][c] = table[ids[t]][c], widened exactly.
struct EmbeddingArgs {
  const uint16_t* table;  // [vocab][hidden] bf16
  const int32_t* ids;     // [num_tokens], each in [0, vocab)
  float* out;             // [num_tokens][hidden]
  int32_t num_tokens, hidden;
};

// out[r][c] = (x[r][c] · (1 / sqrt(mean_c(x²) + epsilon))) · weight[c]. Zhang & Sennrich 2019. out may equal x.
// Also the per-head norm of Q and K: rows = tokens × heads, columns = head_dim.
struct RmsNormArgs {
  const float* x;          // [rows][columns], row stride x_stride
  const uint16_t* weight;  // [columns] bf16
  float* out;              // [rows][columns], row stride out_stride
  int32_t rows, columns;
  ptrdiff_t x_stride, out_stride;
  float epsilon;
};

// out[t][r] = Σ_c w[r][c] · x[t][c]; FP32 accumulation in the backend's fixed order for (matrix, row class).
struct MatmulArgs {
  const std::byte* weight;  // rows × columns, stored as `type` says (model/weights.h)
  WeightType type;
  const float* x;  // [num_tokens][columns]
  float* out;      // [num_tokens][rows], row stride out_stride
  int32_t num_tokens, rows, columns;
  ptrdiff_t out_stride;
};

// Rotary embedding, NEOX style: pairs (i, i + head_dim/2) of each head turn by position · theta^(-2i/head_dim).
// In place. Su et al. 2021. The angle is the FP32 product of the position and the FP32 inverse frequency, as in the
// reference; sine and cosine are then those of that FP32 angle.
struct RopeArgs {
  float* x;                  // [num_tokens][num_heads][head_dim]
  const int32_t* positions;  // [num_tokens]
  int32_t num_tokens, num_heads, head_dim;
  float theta;
};

// Elements of a KV pool.
enum class KvType : uint8_t {
  kBf16,  // the storage contract
  kF32,   // test switch of the numerics contract: K and V unrounded
};

// One layer of a paged KV pool. Canonical form of a block: [k|v][kv_head][32][head_dim]; a backend may lay its own pool
// out otherwise, this table works on the canonical one.
struct KvLayerView {
  std::byte* blocks;             // [num_blocks][2][num_kv_heads][kBlockPositions][head_dim] elements of `type`
  ptrdiff_t block_stride_bytes;  // from one block to the next: a pool of all layers has a larger one than the layer's
  KvType type = KvType::kBf16;
};

// Rounds K and V of one span to the pool's type (nearest even) and stores them at first_position… by the block table.
struct KvWriteArgs {
  const float* k;  // [num_tokens][num_kv_heads][head_dim]
  const float* v;  // [num_tokens][num_kv_heads][head_dim]
  KvLayerView kv;
  const int32_t* block_table;  // [ceil((first_position + num_tokens) / 32)]
  int32_t first_position, num_tokens, num_kv_heads, head_dim;
};

// Causal grouped-query attention of one span over its paged KV: for token t at position p = first_position + t and
// query head h with KV head h / (num_query_heads / num_kv_heads): out[t][h] = Σ_{j ≤ p} softmax_j(q[t][h] · k[j] /
// sqrt(head_dim)) · v[j]. Vaswani et al. 2017; Ainslie et al. 2023. Positions above p, and blocks that the table does
// not name, are never read.
struct AttentionArgs {
  const float* q;  // [num_tokens][num_query_heads][head_dim]
  KvLayerView kv;
  const int32_t* block_table;  // [ceil((first_position + num_tokens) / 32)]
  float* out;                  // [num_tokens][num_query_heads][head_dim]
  int32_t first_position, num_tokens, num_query_heads, num_kv_heads, head_dim;
};

// out[t][c] = silu(gate[t][c]) · up[t][c], silu(x) = x / (1 + exp(-x)). Shazeer 2020. out may equal gate or up.
struct SwigluArgs {
  const float* gate;  // [count]
  const float* up;    // [count]
  float* out;         // [count]
  int64_t count;
};

// x[i] += y[i].
struct ResidualAddArgs {
  float* x;        // [count]
  const float* y;  // [count]
  int64_t count;
};

// What a backend exports to the operator tests; a null entry means that the backend only has a fused form of it.
struct OperatorTable {
  const char* backend;  // "oracle", "cpu/avx512", "cuda", …
  void (*embedding)(const EmbeddingArgs&);
  void (*rms_norm)(const RmsNormArgs&);
  void (*matmul)(const MatmulArgs&);
  void (*rope)(const RopeArgs&);
  void (*kv_write)(const KvWriteArgs&);
  void (*attention)(const AttentionArgs&);
  void (*swiglu)(const SwigluArgs&);
  void (*residual_add)(const ResidualAddArgs&);
};

}  // namespace kipp
