// Causal attention over plain arrays: the arithmetic of attention.cc without blocks, tables and positions.
#include <cmath>

#include "backend/oracle/arithmetic.h"
#include "backend/oracle/ops/operators.h"

namespace kipp::oracle {

void stateless_attention_row(const host::StatelessAttentionArgs& args, int32_t token, int32_t query_head,
                             std::span<float> scratch) {
  const int32_t kv_head = query_head / (args.num_query_heads / args.num_kv_heads);
  const ptrdiff_t stride = ptrdiff_t{args.num_kv_heads} * args.head_dim;  // from one token's K of a head to the next's
  const float* keys = args.k + ptrdiff_t{kv_head} * args.head_dim;
  const float* values = args.v + ptrdiff_t{kv_head} * args.head_dim;
  const ptrdiff_t row = (ptrdiff_t{token} * args.num_query_heads + query_head) * args.head_dim;
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(args.head_dim)));

  const std::span<float> weights = scratch.first(static_cast<size_t>(token) + 1);
  for (int32_t j = 0; j <= token; ++j) {
    weights[static_cast<size_t>(j)] = dot(keys + j * stride, args.q + row, args.head_dim) * scale;
  }
  softmax(weights);
  WeightedSum sum(scratch.subspan(weights.size()).data(), args.head_dim);
  for (int32_t j = 0; j <= token; ++j) {
    sum.add(j, weights[static_cast<size_t>(j)], values + j * stride);
  }
  sum.store(args.out + row);
}

}  // namespace kipp::oracle
