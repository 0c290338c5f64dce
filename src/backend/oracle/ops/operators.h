// The oracle's operators, one file each. Contracts: model/operators.h; arithmetic: backend/oracle/arithmetic.h.
#pragma once

#include <span>

#include "backend/host/operators.h"
#include "model/operators.h"

namespace kipp::oracle {

void embedding(const EmbeddingArgs& args);
void rms_norm(const RmsNormArgs& args);
void matmul(const MatmulArgs& args);
void rope(const RopeArgs& args);
void kv_write(const KvWriteArgs& args);
void attention(const AttentionArgs& args);
void swiglu(const SwigluArgs& args);
void residual_add(const ResidualAddArgs& args);

// One (token, query head) of `attention`, so that threads can split a span. scratch: attention_scratch(…) floats.
void attention_row(const AttentionArgs& args, int32_t token, int32_t query_head, std::span<float> scratch);
// Floats that rows at positions below `end` need: a score a position, and 16 lanes of the output.
size_t attention_scratch(int32_t end, int32_t head_dim);

// One (token, query head); the same scratch.
void stateless_attention_row(const host::StatelessAttentionArgs& args, int32_t token, int32_t query_head,
                             std::span<float> scratch);

const OperatorTable& operator_table();

}  // namespace kipp::oracle
