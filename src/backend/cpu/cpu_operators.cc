// Cutting operators into tasks. A task is worth waking a thread for, and there are several for each, so that a late
// thread holds up little.
#include "backend/cpu/cpu_operators.h"

#include <algorithm>

#include "backend/cpu/operator_table.h"
#include "backend/cpu/tasks.h"
#include "base/check.h"

namespace kipp::cpu {
namespace {

constexpr int64_t kTaskWeightBytes = 1 << 18;     // of a matrix product: they stay in the L2 cache for all tokens
constexpr int64_t kMaxTaskWeightBytes = 1 << 21;  // of a product for few tokens
constexpr int32_t kFewTokens = 16;
constexpr int32_t kTaskRows = 64;  // of a matrix product, at least and as a multiple: four AMX tiles

// Rows of a task of a matrix product with `rows` in all. Few tokens read a matrix once: then long tasks, since each
// begins with a wait for memory. Many read it again and again.
int32_t task_rows(WeightType type, int32_t columns, int64_t rows, int32_t num_tokens, int32_t num_threads) {
  const int64_t row_bytes = std::max<int64_t>(weight_row_bytes(type, columns), 1);
  int64_t bytes = kTaskWeightBytes;
  if (num_tokens <= kFewTokens) {
    bytes = std::clamp(rows * row_bytes / (kTasksPerThread * int64_t{num_threads}), bytes, kMaxTaskWeightBytes);
  }
  return static_cast<int32_t>(std::max<int64_t>(bytes / row_bytes / kTaskRows * kTaskRows, kTaskRows));
}

const char* kv_suffix(KvType type) {
  return type == KvType::kBf16 ? "_bf16" : "_f32";
}

// Tokens [begin, end) of the span.
KvWriteArgs part_of(const KvWriteArgs& span, int64_t begin, int64_t end) {
  const ptrdiff_t width = ptrdiff_t{span.num_kv_heads} * span.head_dim;
  KvWriteArgs part = span;
  part.k += begin * width;
  part.v += begin * width;
  part.first_position += static_cast<int32_t>(begin);
  part.num_tokens = static_cast<int32_t>(end - begin);
  return part;
}

}  // namespace

CpuOperators::CpuOperators(const Kernels& kernels, Precision precision, int32_t num_threads)
    : kernels_(kernels), precision_(precision), threads_(num_threads), attention_tasks_(kernels, threads_) {
  for (const char* name : {"attention_bf16", "attention_f32", "embedding", "kv_write_bf16", "kv_write_f32",
                           "residual_add", "rms_norm", "rope", "stateless_attention", "swiglu"}) {
    counts_.emplace(name, 0);
  }
  counts_.emplace(kernels_.matmul[0][static_cast<size_t>(precision)].name, 0);
}

void CpuOperators::count(const std::string& name) {
  ++counts_[name];
}

void CpuOperators::for_each(int64_t count, int64_t item_cost, const ThreadPool::Body& body) {
  threads_.parallel_for(count, threads_.grain_for(count, item_cost, kTaskCost), body);
}

void CpuOperators::begin_step(std::span<const int32_t> positions, const Dimensions& dimensions) {
  constexpr int64_t kSineCost = 64;
  angles_.reset(positions, dimensions.head_dim, dimensions.rope_theta);
  for_each(std::ssize(positions), kSineCost * dimensions.head_dim,
           [&](int64_t begin, int64_t end) { angles_.fill(begin, end); });
}

void CpuOperators::embedding(const EmbeddingArgs& args) {
  count("embedding");
  for_each(args.num_tokens, args.hidden, [&](int64_t begin, int64_t end) {
    EmbeddingArgs part = args;
    part.ids += begin;
    part.out += begin * args.hidden;
    part.num_tokens = static_cast<int32_t>(end - begin);
    kernels_.embedding(part);
  });
}

void CpuOperators::rms_norm(const RmsNormArgs& args) {
  count("rms_norm");
  for_each(args.rows, args.columns, [&](int64_t begin, int64_t end) {
    RmsNormArgs part = args;
    part.x += begin * args.x_stride;
    part.out += begin * args.out_stride;
    part.rows = static_cast<int32_t>(end - begin);
    kernels_.rms_norm(part);
  });
}

const std::byte* CpuOperators::pack(const MatmulKernel& kernel, const float* x, int32_t num_tokens, int32_t columns) {
  const size_t bytes = kernel.packed_bytes(num_tokens, columns);
  if (bytes == 0) {
    return nullptr;
  }
  grow(packed_, bytes, "packed activations");
  const PackArgs args{x, num_tokens, columns, packed_.data()};
  const int32_t tile = kernel.token_tile;
  const int64_t num_tiles = (int64_t{num_tokens} + tile - 1) / tile;
  for_each(num_tiles, int64_t{tile} * columns, [&](int64_t begin, int64_t end) {
    kernel.pack(args, static_cast<int32_t>(begin * tile),
                static_cast<int32_t>(std::min<int64_t>(end * tile, num_tokens)));
  });
  return packed_.data();
}

void CpuOperators::matmul(std::span<const host::Product> products, const float* x, int32_t num_tokens) {
  const host::Matrix& first = *products.front().weight;
  const MatmulKernel& kernel = kernels_.matmul[static_cast<size_t>(first.type)][static_cast<size_t>(precision_)];
  count(kernel.name);
  const std::byte* packed = pack(kernel, x, num_tokens, first.columns);
  int64_t rows = 0;
  for (const host::Product& product : products) {
    rows += product.weight->rows;
  }
  const int32_t rows_per_task = task_rows(first.type, first.columns, rows, num_tokens, threads_.num_threads());
  int64_t num_tasks = 0;
  for (const host::Product& product : products) {
    KIPP_CHECK(product.weight->type == first.type && product.weight->columns == first.columns);
    num_tasks += (product.weight->rows + rows_per_task - 1) / rows_per_task;
  }
  threads_.parallel_for(num_tasks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      int64_t index = task;
      const host::Product* product = products.data();
      for (int64_t tasks = 0; index >= (tasks = (product->weight->rows + rows_per_task - 1) / rows_per_task);) {
        index -= tasks;
        ++product;
      }
      const auto row = static_cast<int32_t>(index * rows_per_task);
      kernel.multiply({.weight = product->weight->data,
                       .x = x,
                       .packed = packed,
                       .out = product->out,
                       .out_stride = product->weight->rows,
                       .num_tokens = num_tokens,
                       .columns = first.columns,
                       .row_begin = row,
                       .row_end = std::min(row + rows_per_task, product->weight->rows)});
    }
  });
}

void CpuOperators::rope(const RopeArgs& args) {
  count("rope");
  for_each(args.num_tokens, int64_t{args.head_dim} * args.num_heads, [&](int64_t begin, int64_t end) {
    RopeArgs part = args;
    part.x += begin * args.num_heads * args.head_dim;
    part.positions += begin;
    part.num_tokens = static_cast<int32_t>(end - begin);
    kernels_.rotate(part, angles_.cosines(begin), angles_.sines(begin));
  });
}

void CpuOperators::kv_write(std::span<const KvWriteArgs> spans) {
  const KvWriteArgs& first = spans.front();
  count(std::string("kv_write") + kv_suffix(first.kv.type));
  int64_t num_tokens = 0;
  for (const KvWriteArgs& span : spans) {
    num_tokens += span.num_tokens;
  }
  const int64_t cost = 2 * int64_t{first.num_kv_heads} * first.head_dim;
  for_each(num_tokens, cost, [&](int64_t begin, int64_t end) {
    int64_t row = 0;  // of the span's first token
    for (const KvWriteArgs& span : spans) {
      const int64_t from = std::max(begin - row, int64_t{0});
      const int64_t to = std::min<int64_t>(end - row, span.num_tokens);
      if (from < to) {
        kernels_.kv_write(part_of(span, from, to));
      }
      row += span.num_tokens;
    }
  });
}

void CpuOperators::attention(std::span<const AttentionArgs> spans) {
  count(std::string("attention") + kv_suffix(spans.front().kv.type));
  attention_tasks_.run(spans);
}

void CpuOperators::stateless_attention(const host::StatelessAttentionArgs& args) {
  count("stateless_attention");
  attention_tasks_.run_stateless(args);
}

void CpuOperators::swiglu(const SwigluArgs& args) {
  count("swiglu");
  for_each(args.count, 8, [&](int64_t begin, int64_t end) {
    kernels_.swiglu({args.gate + begin, args.up + begin, args.out + begin, end - begin});
  });
}

void CpuOperators::residual_add(const ResidualAddArgs& args) {
  count("residual_add");
  for_each(args.count, 1,
           [&](int64_t begin, int64_t end) { kernels_.residual_add({args.x + begin, args.y + begin, end - begin}); });
}

Report CpuOperators::report() const {
  return {.backend = std::string("cpu/") + kernels_.isa, .kernels = {counts_.begin(), counts_.end()}};
}

const OperatorTable& CpuOperators::table() const {
  return operator_table(kernels_, precision_);
}

}  // namespace kipp::cpu
