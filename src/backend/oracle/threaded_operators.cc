// Cuts each operator into ranges large enough to be worth waking a thread, and small enough to balance.
#include "backend/oracle/threaded_operators.h"

#include <algorithm>
#include <vector>

#include "backend/oracle/ops/operators.h"
#include "base/check.h"

namespace kipp::oracle {
namespace {

constexpr int64_t kRangeCost = 1 << 17;  // operations: about 10 µs, what waking a thread costs

const char* matmul_class(WeightType type) {
  switch (type) {
    case WeightType::kBf16: return "matmul_bf16";
    case WeightType::kQ8_0: return "matmul_q8_0";
    case WeightType::kAffine4Gs32: return "matmul_affine4_gs32";
  }
  return "matmul";
}

}  // namespace

void ThreadedOperators::for_each(const char* name, int64_t count, int64_t item_cost, const ThreadPool::Body& body) {
  const auto found = counts_.find(name);
  KIPP_CHECK(found != counts_.end());  // every class is listed, so that a report tells which did not run
  ++found->second;
  threads_.parallel_for(count, threads_.grain_for(count, item_cost, kRangeCost), body);
}

void ThreadedOperators::embedding(const EmbeddingArgs& args) {
  for_each("embedding", args.num_tokens, args.hidden, [&](int64_t begin, int64_t end) {
    EmbeddingArgs part = args;
    part.ids += begin;
    part.out += begin * args.hidden;
    part.num_tokens = static_cast<int32_t>(end - begin);
    oracle::embedding(part);
  });
}

void ThreadedOperators::rms_norm(const RmsNormArgs& args) {
  for_each("rms_norm", args.rows, 4 * int64_t{args.columns}, [&](int64_t begin, int64_t end) {
    RmsNormArgs part = args;
    part.x += begin * args.x_stride;
    part.out += begin * args.out_stride;
    part.rows = static_cast<int32_t>(end - begin);
    oracle::rms_norm(part);
  });
}

void ThreadedOperators::matmul(std::span<const host::Product> products, const float* x, int32_t num_tokens) {
  for (const host::Product& product : products) {
    matmul(*product.weight, x, product.out, num_tokens);
  }
}

void ThreadedOperators::matmul(const host::Matrix& weight, const float* x, float* out, int32_t num_tokens) {
  const int64_t cost = int64_t{weight.columns} * num_tokens;
  for_each(matmul_class(weight.type), weight.rows, cost, [&](int64_t begin, int64_t end) {
    oracle::matmul({.weight = weight.data + begin * weight_row_bytes(weight.type, weight.columns),
                    .type = weight.type,
                    .x = x,
                    .out = out + begin,
                    .num_tokens = num_tokens,
                    .rows = static_cast<int32_t>(end - begin),
                    .columns = weight.columns,
                    .out_stride = weight.rows});
  });
}

void ThreadedOperators::rope(const RopeArgs& args) {
  const int64_t cost = int64_t{args.head_dim} * (args.num_heads + 100);  // sine and cosine dominate
  for_each("rope", args.num_tokens, cost, [&](int64_t begin, int64_t end) {
    RopeArgs part = args;
    part.x += begin * args.num_heads * args.head_dim;
    part.positions += begin;
    part.num_tokens = static_cast<int32_t>(end - begin);
    oracle::rope(part);
  });
}

void ThreadedOperators::kv_write(std::span<const KvWriteArgs> spans) {
  const auto* name = spans.front().kv.type == KvType::kBf16 ? "kv_write_bf16" : "kv_write_f32";
  for_each(name, std::ssize(spans), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      oracle::kv_write(spans[static_cast<size_t>(i)]);
    }
  });
}

void ThreadedOperators::attention(std::span<const AttentionArgs> spans) {
  for (const AttentionArgs& args : spans) {
    const int32_t end_position = args.first_position + args.num_tokens;
    const int64_t cost = 4 * int64_t{args.head_dim} * end_position;
    for_each(args.kv.type == KvType::kBf16 ? "attention_bf16" : "attention_f32",
             int64_t{args.num_tokens} * args.num_query_heads, cost, [&](int64_t begin, int64_t end) {
               std::vector<float> scratch(attention_scratch(end_position, args.head_dim));
               for (int64_t i = begin; i < end; ++i) {
                 attention_row(args, static_cast<int32_t>(i / args.num_query_heads),
                               static_cast<int32_t>(i % args.num_query_heads), scratch);
               }
             });
  }
}

void ThreadedOperators::stateless_attention(const host::StatelessAttentionArgs& args) {
  const int64_t cost = 4 * int64_t{args.num_tokens} * args.head_dim;
  for_each("stateless_attention", int64_t{args.num_tokens} * args.num_query_heads, cost,
           [&](int64_t begin, int64_t end) {
             std::vector<float> scratch(attention_scratch(args.num_tokens, args.head_dim));
             for (int64_t i = begin; i < end; ++i) {
               oracle::stateless_attention_row(args, static_cast<int32_t>(i / args.num_query_heads),
                                               static_cast<int32_t>(i % args.num_query_heads), scratch);
             }
           });
}

void ThreadedOperators::swiglu(const SwigluArgs& args) {
  for_each("swiglu", args.count, 32, [&](int64_t begin, int64_t end) {
    oracle::swiglu({args.gate + begin, args.up + begin, args.out + begin, end - begin});
  });
}

void ThreadedOperators::residual_add(const ResidualAddArgs& args) {
  for_each("residual_add", args.count, 1,
           [&](int64_t begin, int64_t end) { oracle::residual_add({args.x + begin, args.y + begin, end - begin}); });
}

const OperatorTable& ThreadedOperators::table() const {
  return operator_table();
}

Report ThreadedOperators::report() const {
  return {.backend = "oracle", .kernels = {counts_.begin(), counts_.end()}};
}

}  // namespace kipp::oracle
