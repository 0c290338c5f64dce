// See step_tables.h. Pure data: no device is needed.
#include "backend/cuda/step_tables.h"

#include <algorithm>
#include <bit>

#include "kv/block_pool.h"

namespace kipp::cuda {
namespace {

bool is_generated(const Span& span) {
  return span.row_class == RowClass::kGenerated;
}

int32_t tiles_of(const Span& span, int32_t tile_tokens) {
  return is_generated(span) ? 0 : (span.num_tokens + tile_tokens - 1) / tile_tokens;
}

// Tiles of all prompt spans, those with most positions first.
std::vector<PromptTile> prompt_tiles(const Batch& batch, const StepPlan& plan, int32_t tile_tokens) {
  std::vector<PromptTile> tiles;
  int32_t token = 0;
  for (size_t s = 0; s < batch.spans.size(); ++s) {
    const Span& span = batch.spans[s];
    const int32_t first_row = plan.row_of_token[static_cast<size_t>(token)];
    for (int32_t t = 0; !is_generated(span) && t < span.num_tokens; t += tile_tokens) {
      tiles.push_back({.first_row = first_row + t,
                       .first_position = span.first_position + t,
                       .num_tokens = std::min(tile_tokens, span.num_tokens - t),
                       .sequence = static_cast<int32_t>(s)});
    }
    token += span.num_tokens;
  }
  const auto goes_before = [](const PromptTile& a, const PromptTile& b) {
    const int32_t end_a = a.first_position + a.num_tokens;
    const int32_t end_b = b.first_position + b.num_tokens;
    return end_a != end_b ? end_a > end_b : a.first_row < b.first_row;
  };
  std::ranges::sort(tiles, goes_before);
  return tiles;
}

}  // namespace

StepTables StepTables::at(std::byte* base, const StepShape& shape, size_t& bytes) {
  size_t used = 0;
  const auto take = [&]<typename T>(T*& array, int64_t count) {
    constexpr size_t kAlignment = 16;
    array = reinterpret_cast<T*>(base + used);
    used += (static_cast<size_t>(count) * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
  };
  StepTables tables{};
  take(tables.ids, shape.num_rows());
  take(tables.source, shape.num_rows());
  take(tables.positions, shape.num_rows());
  take(tables.sequences, shape.num_rows());
  take(tables.settled, shape.num_rows());
  take(tables.head_rows, shape.num_heads());
  take(tables.tiles, shape.num_tiles);
  take(tables.block_tables, int64_t{shape.num_sequences} * shape.max_blocks);
  bytes = used;
  return tables;
}

size_t step_tables_bytes(const Limits& limits) {
  const StepShape largest{
      .num_prompt = limits.max_tokens_per_step,
      .num_prompt_heads = limits.max_head_rows,
      .num_sequences = limits.max_sequences,
      .num_tiles = limits.max_tokens_per_step,
      .max_blocks = static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(blocks_for(limits.context))))};
  size_t bytes = 0;
  StepTables::at(nullptr, largest, bytes);
  return bytes;
}

StepPlan plan_step(const Batch& batch, int32_t num_query_heads) {
  StepPlan plan;
  StepShape& shape = plan.shape;
  const int32_t tile_tokens = prompt_tile_tokens(num_query_heads);
  int32_t blocks = 1;
  for (const Span& span : batch.spans) {
    (is_generated(span) ? shape.num_generated : shape.num_prompt) += span.num_tokens;
    shape.num_tiles += tiles_of(span, tile_tokens);
    blocks = std::max(blocks, blocks_for(span.first_position + span.num_tokens));
  }
  shape.num_sequences = static_cast<int32_t>(batch.spans.size());
  shape.max_blocks = static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(blocks)));
  int32_t generated = 0;
  int32_t prompt = shape.num_generated;
  for (const Span& span : batch.spans) {
    int32_t& next = is_generated(span) ? generated : prompt;
    for (int32_t t = 0; t < span.num_tokens; ++t) plan.row_of_token.push_back(next++);
  }
  const auto of_generated = [&](int32_t token) {
    return plan.row_of_token[static_cast<size_t>(token)] < shape.num_generated;
  };
  shape.num_generated_heads = static_cast<int32_t>(std::ranges::count_if(batch.head_rows, of_generated));
  shape.num_prompt_heads = static_cast<int32_t>(batch.head_rows.size()) - shape.num_generated_heads;
  int32_t generated_head = 0;
  int32_t prompt_head = shape.num_generated_heads;
  for (const int32_t token : batch.head_rows) {
    plan.slot_of_head.push_back(of_generated(token) ? generated_head++ : prompt_head++);
  }
  return plan;
}

void fill_tables(const Batch& batch, const StepPlan& plan, int32_t num_query_heads,
                 std::span<const int32_t> previous_slots, const StepTables& tables) {
  size_t token = 0;
  for (size_t s = 0; s < batch.spans.size(); ++s) {
    const Span& span = batch.spans[s];
    for (int32_t t = 0; t < span.num_tokens; ++t, ++token) {
      const int32_t row = plan.row_of_token[token];
      const TokenRef& input = batch.tokens[token];
      tables.ids[row] = input.from_row >= 0 ? 0 : input.token;
      tables.source[row] = input.from_row >= 0 ? previous_slots[static_cast<size_t>(input.from_row)] : -1;
      tables.positions[row] = span.first_position + t;
      tables.sequences[row] = static_cast<int32_t>(s);
      tables.settled[row] = span.first_position;
    }
    int32_t* table = tables.block_tables + s * static_cast<size_t>(plan.shape.max_blocks);
    int32_t* rest = std::ranges::copy(span.block_table, table).out;
    std::fill(rest, table + plan.shape.max_blocks, 0);
  }
  for (size_t h = 0; h < batch.head_rows.size(); ++h) {
    tables.head_rows[plan.slot_of_head[h]] = plan.row_of_token[static_cast<size_t>(batch.head_rows[h])];
  }
  std::ranges::copy(prompt_tiles(batch, plan, prompt_tile_tokens(num_query_heads)), tables.tiles);
}

}  // namespace kipp::cuda
