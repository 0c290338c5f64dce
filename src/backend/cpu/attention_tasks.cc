// An item is a tile of queries and their KV head. A task computes either a few items whole, or one segment of an item,
// whose last task merges all segments in order: the same operations in the same order, so that no cut changes a bit.
#include "backend/cpu/attention_tasks.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <iterator>
#include <memory>

#include "backend/cpu/tasks.h"
#include "backend/host/kv_storage.h"
#include "base/bf16.h"
#include "base/check.h"
#include "kv/block_pool.h"

namespace kipp::cpu {
namespace {

int32_t num_segments(const AttendArgs& args) {
  return (args.first_position + args.num_tokens + kSegmentPositions - 1) / kSegmentPositions;
}

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

UpcomingKeys keys_of(const AttendArgs& args, int32_t segment) {
  constexpr int32_t kSegmentBlocks = kSegmentPositions / kBlockPositions;
  const int32_t first = segment * kSegmentBlocks;
  const int32_t num_blocks = blocks_for(args.first_position + args.num_tokens);
  return {args.keys + first, args.head_offset, std::min(num_blocks - first, kSegmentBlocks)};
}

}  // namespace

// One span's queries over blocks whose addresses are known, and how it is cut.
struct AttentionTasks::SpanWork {
  AttendArgs all;  // of KV head 0 and the span's first token
  int32_t num_kv_heads;
  ptrdiff_t head_stride_bytes;  // from one KV head's K (V) to the next's

  int64_t items_per_task = 1;     // 0: a task is one segment
  int64_t first_task = 0;         // among all spans'
  int64_t first_shared_item = 0;  // in open_segments_, if a task is one segment
  float* partials = nullptr;      // likewise [num_items()][segments()][partial_floats(head_dim)]

  int32_t segments() const { return num_segments(all); }
  int32_t tile_tokens() const { return std::max(1, kMaxQueries / all.group); }
  int32_t num_tiles() const { return (all.num_tokens + tile_tokens() - 1) / tile_tokens(); }
  int64_t num_items() const { return int64_t{num_tiles()} * num_kv_heads; }
  int64_t num_tasks() const {
    return items_per_task == 0 ? num_items() * segments() : ceil_div(num_items(), items_per_task);
  }
  // Elements of K and V, each read once and then multiplied with every query.
  int64_t item_cost() const {
    const int64_t queries = int64_t{std::min(tile_tokens(), all.num_tokens)} * all.group;
    return 2 * int64_t{all.first_position + all.num_tokens} * all.head_dim * (1 + queries);
  }

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

// Tasks of about the same cost, a few for each thread: only what is longer than that is worth partial results. Returns
// the cost of all.
int64_t AttentionTasks::cut(std::vector<SpanWork>& works) {
  int64_t total_cost = 0;
  for (const SpanWork& work : works) {
    total_cost += work.num_items() * work.item_cost();
  }
  const int64_t task_cost = std::max(total_cost / (threads_.num_threads() * kTasksPerThread), kTaskCost);
  int64_t num_tasks = 0;
  size_t num_shared_items = 0;
  size_t num_floats = 0;
  // The longest tasks first: what begins last must not be what all others wait for.
  std::ranges::sort(works, std::greater<>(), &SpanWork::item_cost);
  for (SpanWork& work : works) {
    const bool is_shared = work.item_cost() > task_cost && work.segments() > 1;
    work.items_per_task = is_shared ? 0 : std::max<int64_t>(task_cost / work.item_cost(), 1);
    work.first_task = num_tasks;
    num_tasks += work.num_tasks();
    if (is_shared) {
      work.first_shared_item = static_cast<int64_t>(num_shared_items);
      num_shared_items += static_cast<size_t>(work.num_items());
      num_floats += static_cast<size_t>(work.num_tasks() * partial_floats(work.all.head_dim));
    }
  }
  grow(partials_, num_floats, "partial sums of attention");
  open_segments_.resize(num_shared_items);
  float* partials = partials_.data();
  for (SpanWork& work : works) {
    if (work.items_per_task == 0) {
      work.partials = partials;
      partials += work.num_tasks() * partial_floats(work.all.head_dim);
      std::fill_n(open_segments_.begin() + work.first_shared_item, work.num_items(), work.segments());
    }
  }
  return total_cost;
}

void AttentionTasks::run_all(std::vector<SpanWork>& works) {
  const int32_t head_dim = works.front().all.head_dim;
  for (const SpanWork& work : works) {
    KIPP_CHECK(work.all.group <= kMaxQueries && work.all.head_dim == head_dim);
  }
  const bool is_one_task = cut(works) <= kTaskCost;
  const int64_t num_tasks = works.back().first_task + works.back().num_tasks();
  threads_.parallel_for(num_tasks, is_one_task ? num_tasks : 1, [&](int64_t begin, int64_t end) {
    const auto size = static_cast<size_t>(partial_floats(head_dim));
    const auto scratch = std::make_unique_for_overwrite<float[]>(2 * size);
    for (int64_t task = begin; task < end; ++task) {
      const auto behind = std::ranges::upper_bound(works, task, {}, &SpanWork::first_task);
      const SpanWork& work = *std::prev(behind);
      run_task(work, task - work.first_task, scratch.get());
    }
  });
}

// scratch: two partial results.
void AttentionTasks::run_task(const SpanWork& work, int64_t index, float* scratch) {
  if (work.items_per_task == 0) {
    run_segment(work, index);
  } else {
    const int64_t begin = index * work.items_per_task;
    run_items(work, begin, std::min(begin + work.items_per_task, work.num_items()), scratch);
  }
}

void AttentionTasks::run_items(const SpanWork& work, int64_t begin, int64_t end, float* scratch) const {
  float* total = scratch;
  float* later = scratch + partial_floats(work.all.head_dim);
  for (int64_t i = begin; i < end; ++i) {
    const AttendArgs args = work.item(i);
    const UpcomingKeys behind = i + 1 < end ? keys_of(work.item(i + 1), 0) : UpcomingKeys{};
    for (int32_t segment = 0; segment < num_segments(args); ++segment) {
      const UpcomingKeys next = segment + 1 < num_segments(args) ? keys_of(args, segment + 1) : behind;
      kernels_.attend(args, segment, next, segment == 0 ? total : later);
      if (segment > 0) {
        kernels_.merge(args, later, total);
      }
    }
    kernels_.finish(args, total);
  }
}

void AttentionTasks::run_segment(const SpanWork& work, int64_t index) {
  const int64_t item = index / work.segments();
  const auto segment = static_cast<int32_t>(index % work.segments());
  const AttendArgs args = work.item(item);
  const ptrdiff_t size = partial_floats(work.all.head_dim);
  float* total = work.partials + item * work.segments() * size;
  if (segment < num_segments(args)) {  // an early tile of a prompt has fewer than the span
    kernels_.attend(args, segment, {}, total + segment * size);
  }
  const std::atomic_ref<int32_t> open(open_segments_[static_cast<size_t>(work.first_shared_item + item)]);
  if (open.fetch_sub(1, std::memory_order_acq_rel) > 1) {
    return;
  }
  for (int32_t later = 1; later < num_segments(args); ++later) {
    kernels_.merge(args, total + later * size, total);
  }
  kernels_.finish(args, total);
}

void AttentionTasks::run(std::span<const AttentionArgs> spans) {
  if (spans.empty()) {
    return;
  }
  size_t num_blocks = 0;
  for (const AttentionArgs& span : spans) {
    num_blocks += static_cast<size_t>(blocks_for(span.first_position + span.num_tokens));
  }
  keys_.resize(num_blocks);
  values_.resize(num_blocks);
  std::vector<SpanWork> works;
  works.reserve(spans.size());
  size_t first_block = 0;
  for (const AttentionArgs& span : spans) {
    const auto element = static_cast<ptrdiff_t>(host::element_bytes(span.kv.type));
    const ptrdiff_t head_bytes = ptrdiff_t{kBlockPositions} * span.head_dim * element;
    works.push_back({.all = {.q = span.q,
                             .out = span.out,
                             .token_stride = ptrdiff_t{span.num_query_heads} * span.head_dim,
                             .keys = keys_.data() + first_block,
                             .values = values_.data() + first_block,
                             .head_offset = 0,
                             .position_stride = span.head_dim,
                             .type = span.kv.type,
                             .first_position = span.first_position,
                             .num_tokens = span.num_tokens,
                             .group = span.num_query_heads / span.num_kv_heads,
                             .head_dim = span.head_dim},
                     .num_kv_heads = span.num_kv_heads,
                     .head_stride_bytes = head_bytes});
    const auto count = static_cast<size_t>(blocks_for(span.first_position + span.num_tokens));
    for (size_t b = 0; b < count; ++b) {
      const std::byte* block = span.kv.blocks + span.block_table[b] * span.kv.block_stride_bytes;
      keys_[first_block + b] = block;
      values_[first_block + b] = block + span.num_kv_heads * head_bytes;
    }
    first_block += count;
  }
  run_all(works);
}

// A prompt's plain arrays: the kernel's runs of 32 positions follow each other. Values that the pool would store in
// BF16 are given to the kernel as the pool would give them.
void AttentionTasks::run_stateless(const host::StatelessAttentionArgs& args) {
  const ptrdiff_t width = ptrdiff_t{args.num_kv_heads} * args.head_dim;
  const int32_t num_blocks = blocks_for(args.num_tokens);
  const auto element = static_cast<ptrdiff_t>(host::element_bytes(args.type));
  std::vector<uint16_t> narrow;  // K, then V; whole blocks of each
  const auto* keys = reinterpret_cast<const std::byte*>(args.k);
  const auto* values = reinterpret_cast<const std::byte*>(args.v);
  if (args.type == KvType::kBf16) {
    const auto size = static_cast<size_t>(ptrdiff_t{num_blocks} * kBlockPositions * width);
    narrow.resize(2 * size);
    const ptrdiff_t count = args.num_tokens * width;
    std::transform(args.k, args.k + count, narrow.begin(), f32_to_bf16);
    std::transform(args.v, args.v + count, narrow.begin() + static_cast<ptrdiff_t>(size), f32_to_bf16);
    keys = reinterpret_cast<const std::byte*>(narrow.data());
    values = reinterpret_cast<const std::byte*>(narrow.data() + size);
  }
  keys_.clear();
  values_.clear();
  for (ptrdiff_t block = 0; block < num_blocks; ++block) {
    keys_.push_back(keys + block * kBlockPositions * width * element);
    values_.push_back(values + block * kBlockPositions * width * element);
  }
  std::vector<SpanWork> works = {{.all = {.q = args.q,
                                          .out = args.out,
                                          .token_stride = ptrdiff_t{args.num_query_heads} * args.head_dim,
                                          .keys = keys_.data(),
                                          .values = values_.data(),
                                          .head_offset = 0,
                                          .position_stride = width,
                                          .type = args.type,
                                          .first_position = 0,
                                          .num_tokens = args.num_tokens,
                                          .group = args.num_query_heads / args.num_kv_heads,
                                          .head_dim = args.head_dim},
                                  .num_kv_heads = args.num_kv_heads,
                                  .head_stride_bytes = args.head_dim * element}};
  run_all(works);
}

}  // namespace kipp::cpu
