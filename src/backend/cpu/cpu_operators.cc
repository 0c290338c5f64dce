// Cutting operators into tasks. A task is worth waking a thread for, and there are several for each, so that a late
// thread holds up little.
#include "backend/cpu/cpu_operators.h"

#include <algorithm>
#include <cmath>
#include <new>

#include "backend/cpu/operator_table.h"
#include "base/check.h"

namespace kipp::cpu {
namespace {

constexpr int64_t kTaskCost = 1 << 16;            // elements or so: a few microseconds
constexpr int64_t kTaskWeightBytes = 1 << 18;     // of a matrix product: they stay in the L2 cache for all tokens
constexpr int64_t kMaxTaskWeightBytes = 1 << 21;  // of a product for few tokens
constexpr int64_t kTasksPerThread = 4;            // of a product for few tokens: a late thread holds up little
constexpr int32_t kFewTokens = 16;
constexpr int32_t kTaskRows = 64;  // of a matrix product, at least and as a multiple: four AMX tiles

template <typename T>
void grow(AlignedBuffer<T>& buffer, size_t size, std::string_view what) {
  if (buffer.size() >= size) {
    return;
  }
  auto larger = AlignedBuffer<T>::create(size, what);
  if (!larger) {
    throw std::bad_alloc();
  }
  buffer = *std::move(larger);
}

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

}  // namespace

CpuOperators::CpuOperators(const Kernels& kernels, Precision precision, int32_t num_threads)
    : kernels_(kernels), precision_(precision), threads_(num_threads) {
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

void rotary_angles(std::span<const int32_t> positions, int32_t head_dim, float theta, std::vector<float>& cosines,
                   std::vector<float>& sines) {
  const auto half = static_cast<size_t>(head_dim / 2);
  cosines.resize(positions.size() * half);
  sines.resize(positions.size() * half);
  for (size_t i = 0; i < half; ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / head_dim;
    const float frequency = 1.0F / static_cast<float>(std::pow(static_cast<double>(theta), exponent));
    for (size_t t = 0; t < positions.size(); ++t) {
      const float angle = static_cast<float>(positions[t]) * frequency;
      cosines[t * half + i] = static_cast<float>(std::cos(static_cast<double>(angle)));
      sines[t * half + i] = static_cast<float>(std::sin(static_cast<double>(angle)));
    }
  }
}

void CpuOperators::begin_step(std::span<const int32_t> positions, const Dimensions& dimensions) {
  rotary_angles(positions, dimensions.head_dim, dimensions.rope_theta, cosines_, sines_);
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
  const ptrdiff_t half = args.head_dim / 2;
  for_each(args.num_tokens, int64_t{args.head_dim} * args.num_heads, [&](int64_t begin, int64_t end) {
    RopeArgs part = args;
    part.x += begin * args.num_heads * args.head_dim;
    part.positions += begin;
    part.num_tokens = static_cast<int32_t>(end - begin);
    kernels_.rotate(part, cosines_.data() + begin * half, sines_.data() + begin * half);
  });
}

void CpuOperators::kv_write(const KvWriteArgs& args) {
  count(std::string("kv_write") + kv_suffix(args.kv.type));
  const int64_t cost = 2 * int64_t{args.num_kv_heads} * args.head_dim;
  for_each(args.num_tokens, cost, [&](int64_t begin, int64_t end) {
    KvWriteArgs part = args;
    const ptrdiff_t width = ptrdiff_t{args.num_kv_heads} * args.head_dim;
    part.k += begin * width;
    part.v += begin * width;
    part.first_position += static_cast<int32_t>(begin);
    part.num_tokens = static_cast<int32_t>(end - begin);
    kernels_.kv_write(part);
  });
}

// One span's queries over blocks whose addresses are known.
struct CpuOperators::AttentionWork {
  AttendArgs all;  // of KV head 0 and the span's first token
  int32_t num_kv_heads;
  ptrdiff_t head_stride_bytes;  // from one KV head's K (V) to the next's

  int32_t tile_tokens() const { return std::max(1, kMaxQueries / all.group); }
  int32_t num_tiles() const { return (all.num_tokens + tile_tokens() - 1) / tile_tokens(); }
  int64_t num_items() const { return int64_t{num_tiles()} * num_kv_heads; }

  // Tiles of one KV head follow each other, so that its K and V stay in a thread's cache.
  AttendArgs item(int64_t index) const {
    const auto head = static_cast<int32_t>(index / num_tiles());
    const auto first = static_cast<int32_t>(index % num_tiles()) * tile_tokens();
    AttendArgs args = all;
    args.q += first * all.token_stride + ptrdiff_t{head} * all.group * all.head_dim;
    args.out += first * all.token_stride + ptrdiff_t{head} * all.group * all.head_dim;
    args.head_offset = head * head_stride_bytes;
    args.first_position += first;
    args.num_tokens = std::min(tile_tokens(), all.num_tokens - first);
    return args;
  }
};

namespace {

int32_t num_segments(const AttendArgs& args) {
  return (args.first_position + args.num_tokens + kSegmentPositions - 1) / kSegmentPositions;
}

}  // namespace

float* CpuOperators::partials(size_t count) {
  grow(partials_, count, "partial sums of attention");
  return partials_.data();
}

void CpuOperators::attend_all(const AttentionWork& work) {
  KIPP_CHECK(work.all.group <= kMaxQueries);
  const int32_t segments = num_segments(work.all);
  if (segments > 1 && work.num_items() < 2 * int64_t{threads_.num_threads()}) {
    attend_in_segments(work, segments);
    return;
  }
  const int64_t cost = 4 * int64_t{work.all.head_dim} * (work.all.first_position + work.all.num_tokens);
  for_each(work.num_items(), cost, [&](int64_t begin, int64_t end) {
    const auto size = static_cast<size_t>(partial_floats(work.all.head_dim));
    std::vector<float> total(size);
    std::vector<float> later(size);
    for (int64_t i = begin; i < end; ++i) {
      const AttendArgs args = work.item(i);
      kernels_.attend(args, 0, total.data());
      for (int32_t segment = 1; segment < num_segments(args); ++segment) {
        kernels_.attend(args, segment, later.data());
        kernels_.merge(args, later.data(), total.data());
      }
      kernels_.finish(args, total.data());
    }
  });
}

// Few queries over a long context: threads share an item's segments, which are then merged in order.
void CpuOperators::attend_in_segments(const AttentionWork& work, int32_t segments) {
  const ptrdiff_t size = partial_floats(work.all.head_dim);
  float* buffer = partials(static_cast<size_t>(work.num_items() * segments * size));
  threads_.parallel_for(work.num_items() * segments, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      kernels_.attend(work.item(i / segments), static_cast<int32_t>(i % segments), buffer + i * size);
    }
  });
  for (int64_t item = 0; item < work.num_items(); ++item) {
    const AttendArgs args = work.item(item);
    float* total = buffer + item * segments * size;
    for (int32_t segment = 1; segment < segments; ++segment) {
      kernels_.merge(args, total + segment * size, total);
    }
    kernels_.finish(args, total);
  }
}

void CpuOperators::attention(const AttentionArgs& args) {
  count(std::string("attention") + kv_suffix(args.kv.type));
  const int32_t num_blocks = (args.first_position + args.num_tokens + kBlockPositions - 1) / kBlockPositions;
  const ptrdiff_t element = args.kv.type == KvType::kBf16 ? 2 : 4;
  const ptrdiff_t head_bytes = ptrdiff_t{kBlockPositions} * args.head_dim * element;
  keys_.clear();
  values_.clear();
  for (int32_t b = 0; b < num_blocks; ++b) {
    const std::byte* block = args.kv.blocks + args.block_table[b] * args.kv.block_stride_bytes;
    keys_.push_back(block);
    values_.push_back(block + args.num_kv_heads * head_bytes);
  }
  attend_all({.all = {.q = args.q,
                      .out = args.out,
                      .token_stride = ptrdiff_t{args.num_query_heads} * args.head_dim,
                      .keys = keys_.data(),
                      .values = values_.data(),
                      .head_offset = 0,
                      .position_stride = args.head_dim,
                      .type = args.kv.type,
                      .first_position = args.first_position,
                      .num_tokens = args.num_tokens,
                      .group = args.num_query_heads / args.num_kv_heads,
                      .head_dim = args.head_dim},
              .num_kv_heads = args.num_kv_heads,
              .head_stride_bytes = head_bytes});
}

// A prompt's plain arrays: the kernel's runs of 32 positions follow each other.
void CpuOperators::stateless_attention(const host::StatelessAttentionArgs& args) {
  count("stateless_attention");
  const ptrdiff_t width = ptrdiff_t{args.num_kv_heads} * args.head_dim;
  std::vector<const std::byte*> keys;
  std::vector<const std::byte*> values;
  for (ptrdiff_t token = 0; token < args.num_tokens; token += kBlockPositions) {
    keys.push_back(reinterpret_cast<const std::byte*>(args.k + token * width));
    values.push_back(reinterpret_cast<const std::byte*>(args.v + token * width));
  }
  attend_all({.all = {.q = args.q,
                      .out = args.out,
                      .token_stride = ptrdiff_t{args.num_query_heads} * args.head_dim,
                      .keys = keys.data(),
                      .values = values.data(),
                      .head_offset = 0,
                      .position_stride = width,
                      .type = KvType::kF32,
                      .first_position = 0,
                      .num_tokens = args.num_tokens,
                      .group = args.num_query_heads / args.num_kv_heads,
                      .head_dim = args.head_dim},
              .num_kv_heads = args.num_kv_heads,
              .head_stride_bytes = args.head_dim * static_cast<ptrdiff_t>(sizeof(float))});
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
