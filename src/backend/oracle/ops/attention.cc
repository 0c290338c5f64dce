// Causal grouped-query attention over paged K and V, one (token, query head) after the other.
#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/oracle/arithmetic.h"
#include "backend/oracle/ops/operators.h"
#include "backend/oracle/ops/paged_kv.h"
#include "base/seeded_fault.h"

namespace kipp::oracle {
namespace {

// The token sees itself and what came before.
int32_t visible_positions(const AttentionArgs& args, int32_t token) {
  const int32_t count = args.first_position + token + 1;
  if (seeded(Fault::kMaskSeesFuture)) return std::min(count + 1, args.first_position + args.num_tokens);
  if (seeded(Fault::kMaskWithoutSelf)) return std::max(count - 1, 1);
  if (seeded(Fault::kDroppedTailBlock) && count > kBlockPositions) return count / kBlockPositions * kBlockPositions;
  return count;
}

int32_t kv_head_of(const AttentionArgs& args, int32_t query_head) {
  if (seeded(Fault::kGroupInterleaved)) return query_head % args.num_kv_heads;
  return query_head / (args.num_query_heads / args.num_kv_heads);
}

template <typename Element>
void attend(const AttentionArgs& args, int32_t token, int32_t query_head, std::span<float> scratch) {
  const int32_t num_positions = visible_positions(args, token);
  const int32_t kv_head = kv_head_of(args, query_head);
  const ptrdiff_t row = (ptrdiff_t{token} * args.num_query_heads + query_head) * args.head_dim;
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(args.head_dim)));
  const auto vector = [&](int32_t position, KvPart part) {
    if (seeded(Fault::kBlockReadOffByOne)) position = std::max(position - kBlockPositions, position % kBlockPositions);
    return kv_vector<const Element>(args.kv, args.block_table, position, part, kv_head, args.num_kv_heads,
                                    args.head_dim);
  };

  const std::span<float> weights = scratch.first(static_cast<size_t>(num_positions));
  for (int32_t j = 0; j < num_positions; ++j) {
    weights[static_cast<size_t>(j)] = dot(vector(j, KvPart::kKey), args.q + row, args.head_dim) * scale;
  }
  softmax(weights);
  WeightedSum sum(scratch.subspan(weights.size()).data(), args.head_dim);
  for (int32_t j = 0; j < num_positions; ++j) {
    sum.add(j, weights[static_cast<size_t>(j)], vector(j, KvPart::kValue));
  }
  sum.store(args.out + row);
}

}  // namespace

size_t attention_scratch(int32_t end, int32_t head_dim) {
  return static_cast<size_t>(end) + static_cast<size_t>(kLanes) * static_cast<size_t>(head_dim);
}

void attention_row(const AttentionArgs& args, int32_t token, int32_t query_head, std::span<float> scratch) {
  switch (args.kv.type) {
    case KvType::kBf16: return attend<uint16_t>(args, token, query_head, scratch);
    case KvType::kF32: return attend<float>(args, token, query_head, scratch);
  }
}

void attention(const AttentionArgs& args) {
  std::vector<float> scratch(attention_scratch(args.first_position + args.num_tokens, args.head_dim));
  for (int32_t t = 0; t < args.num_tokens; ++t) {
    for (int32_t h = 0; h < args.num_query_heads; ++h) {
      attention_row(args, t, h, scratch);
    }
  }
}

}  // namespace kipp::oracle
