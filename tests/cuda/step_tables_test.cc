// The order of a step's rows on the device and the tables that say so, against what the batch says. Needs no GPU.
#include "backend/cuda/step_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "base/block_positions.h"
#include "kv/block_pool.h"

namespace kipp::cuda {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::FieldsAre;

constexpr int32_t kHeads = 64;  // query heads whose prompt tiles are short
constexpr int32_t kTile = 16;
static_assert(prompt_tile_tokens(kHeads) == kTile);

constexpr auto kPrompt = RowClass::kPrompt;
constexpr auto kGenerated = RowClass::kGenerated;

// A batch that owns what its spans point to.
class BatchOf {
 public:
  // Blocks are numbered on from `first_block`, so that no two sequences share one.
  void add(RowClass row_class, int32_t first_position, int32_t num_tokens) {
    std::vector<int32_t> table(static_cast<size_t>(blocks_for(first_position + num_tokens)));
    std::iota(table.begin(), table.end(), next_block_);
    next_block_ += static_cast<int32_t>(table.size());
    block_tables_.push_back(std::move(table));
    spans_.push_back({.slot = static_cast<int32_t>(spans_.size()),
                      .first_position = first_position,
                      .num_tokens = num_tokens,
                      .row_class = row_class,
                      .block_table = block_tables_.back()});
    for (int32_t t = 0; t < num_tokens; ++t) tokens_.push_back({.token = 1000 + static_cast<int32_t>(tokens_.size())});
  }
  void take_from_row(size_t token, int32_t from_row) { tokens_[token] = {.token = -1, .from_row = from_row}; }
  void set_heads(std::vector<int32_t> head_rows) { head_rows_ = std::move(head_rows); }

  Batch batch() const { return {.spans = spans_, .tokens = tokens_, .head_rows = head_rows_}; }
  int32_t num_tokens() const { return static_cast<int32_t>(tokens_.size()); }

 private:
  int32_t next_block_ = 1;
  std::vector<std::vector<int32_t>> block_tables_;  // a moved vector keeps its elements where they are
  std::vector<Span> spans_;
  std::vector<TokenRef> tokens_;
  std::vector<int32_t> head_rows_;
};

// The tables of a batch, in memory of exactly their size between guards.
class FilledTables {
 public:
  FilledTables(const Batch& batch, const StepPlan& plan, std::span<const int32_t> previous_slots,
               int32_t heads = kHeads)
      : shape_(plan.shape) {
    size_t bytes = 0;
    StepTables::at(nullptr, shape_, bytes);
    memory_.assign(bytes + 2 * kGuard, kCanary);
    tables_ = StepTables::at(memory_.data() + kGuard, shape_, bytes);
    fill_tables(batch, plan, heads, previous_slots, tables_);
    EXPECT_THAT(std::span(memory_).first(kGuard), Each(kCanary));
    EXPECT_THAT(std::span(memory_).last(kGuard), Each(kCanary));
  }

  std::span<const int32_t> ids() const { return rows(tables_.ids); }
  std::span<const int32_t> source() const { return rows(tables_.source); }
  std::span<const int32_t> positions() const { return rows(tables_.positions); }
  std::span<const int32_t> sequences() const { return rows(tables_.sequences); }
  std::span<const int32_t> head_rows() const { return {tables_.head_rows, static_cast<size_t>(shape_.num_heads())}; }
  std::span<const PromptTile> tiles() const { return {tables_.tiles, static_cast<size_t>(shape_.num_tiles)}; }
  std::span<const int32_t> block_table(int32_t sequence) const {
    return {tables_.block_tables + int64_t{sequence} * shape_.max_blocks, static_cast<size_t>(shape_.max_blocks)};
  }

 private:
  static constexpr size_t kGuard = 64;
  static constexpr std::byte kCanary{0xA5};

  std::span<const int32_t> rows(const int32_t* array) const { return {array, static_cast<size_t>(shape_.num_rows())}; }

  StepShape shape_;
  std::vector<std::byte> memory_;
  StepTables tables_{};
};

// Both classes in turns: 5 prompt tokens, one generated, 40 prompt tokens, three generated ones that are verified.
BatchOf mixed_batch() {
  BatchOf batch;
  batch.add(kPrompt, 30, 5);
  batch.add(kGenerated, 64, 1);
  batch.add(kPrompt, 0, 40);
  batch.add(kGenerated, 10, 3);
  batch.set_heads({0, 4, 5, 30, 46, 48});
  return batch;
}

std::vector<int32_t> ascending(int32_t first, int32_t count) {
  std::vector<int32_t> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), first);
  return values;
}

TEST(StepTables, GeneratedRowsGoFirstAndEachClassKeepsItsOrder) {
  const BatchOf batch = mixed_batch();
  const StepPlan plan = plan_step(batch.batch(), kHeads);
  std::vector<int32_t> expected = ascending(4, 5);
  expected.push_back(0);
  std::ranges::copy(ascending(9, 40), std::back_inserter(expected));
  std::ranges::copy(ascending(1, 3), std::back_inserter(expected));
  EXPECT_EQ(plan.row_of_token, expected);
}

TEST(StepTables, TheShapeCountsBothClasses) {
  const StepShape shape = plan_step(mixed_batch().batch(), kHeads).shape;
  EXPECT_EQ(shape.num_generated, 4);
  EXPECT_EQ(shape.num_prompt, 45);
  EXPECT_EQ(shape.num_rows(), 49);
  EXPECT_EQ(shape.num_generated_heads, 3);
  EXPECT_EQ(shape.num_prompt_heads, 3);
  EXPECT_EQ(shape.num_heads(), 6);
  EXPECT_EQ(shape.num_sequences, 4);
  EXPECT_EQ(shape.num_tiles, 1 + 3);
  EXPECT_EQ(shape.max_blocks, 4);  // 65 positions are three blocks
}

TEST(StepTables, HeadRowsGoByClassToo) {
  const BatchOf batch = mixed_batch();
  const StepPlan plan = plan_step(batch.batch(), kHeads);
  EXPECT_THAT(plan.slot_of_head, ElementsAre(3, 4, 0, 5, 1, 2));
  const FilledTables tables(batch.batch(), plan, {});
  EXPECT_THAT(tables.head_rows(), ElementsAre(0, 1, 3, 4, 8, 33));  // device rows of tokens 5, 46, 48, 0, 4, 30
}

TEST(StepTables, ABatchWithoutHeadRowsHasNone) {
  BatchOf batch = mixed_batch();
  batch.set_heads({});
  const StepPlan plan = plan_step(batch.batch(), kHeads);
  EXPECT_EQ(plan.shape.num_heads(), 0);
  EXPECT_TRUE(plan.slot_of_head.empty());
}

TEST(StepTables, RowsKnowTheirTokenPositionAndSequence) {
  const BatchOf batch = mixed_batch();
  const StepPlan plan = plan_step(batch.batch(), kHeads);
  const FilledTables tables(batch.batch(), plan, {});
  EXPECT_THAT(tables.ids().first(9), ElementsAre(1005, 1046, 1047, 1048, 1000, 1001, 1002, 1003, 1004));
  EXPECT_THAT(tables.positions().first(9), ElementsAre(64, 10, 11, 12, 30, 31, 32, 33, 34));
  EXPECT_THAT(tables.sequences().first(9), ElementsAre(1, 3, 3, 3, 0, 0, 0, 0, 0));
  EXPECT_THAT(tables.positions().subspan(9), ElementsAreArray(ascending(0, 40)));
  EXPECT_THAT(tables.ids().subspan(9), ElementsAreArray(ascending(1006, 40)));
  EXPECT_THAT(tables.sequences().subspan(9), Each(2));
  EXPECT_THAT(tables.source(), Each(-1));
}

// from_row counts the head rows of the step before as the batch gave them; on the device they lie in its slots.
TEST(StepTables, ATokenOfTheStepBeforeIsFoundInThatStepsSlot) {
  const StepPlan before = plan_step(mixed_batch().batch(), kHeads);
  BatchOf batch;
  batch.add(kPrompt, 0, 2);
  batch.add(kGenerated, 35, 1);
  batch.add(kGenerated, 65, 1);
  batch.take_from_row(2, 1);
  batch.take_from_row(3, 2);
  const StepPlan plan = plan_step(batch.batch(), kHeads);
  const FilledTables tables(batch.batch(), plan, before.slot_of_head);
  EXPECT_THAT(tables.source(), ElementsAre(4, 0, -1, -1));
  EXPECT_THAT(tables.ids(), ElementsAre(0, 0, 1000, 1001));  // an id that is not there yet must not lead anywhere
}

TEST(StepTables, BlockTablesArePaddedWithBlockZero) {
  const BatchOf batch = mixed_batch();
  const StepPlan plan = plan_step(batch.batch(), kHeads);
  const FilledTables tables(batch.batch(), plan, {});
  EXPECT_THAT(tables.block_table(0), ElementsAre(1, 2, 0, 0));
  EXPECT_THAT(tables.block_table(1), ElementsAre(3, 4, 5, 0));
  EXPECT_THAT(tables.block_table(2), ElementsAre(6, 7, 0, 0));
  EXPECT_THAT(tables.block_table(3), ElementsAre(8, 0, 0, 0));
}

TEST(StepTables, TilesCoverPromptsOnlyAndThoseWithMostPositionsGoFirst) {
  const BatchOf batch = mixed_batch();
  const StepPlan plan = plan_step(batch.batch(), kHeads);
  const FilledTables tables(batch.batch(), plan, {});
  EXPECT_THAT(tables.tiles(), ElementsAre(FieldsAre(41, 32, 8, 2), FieldsAre(4, 30, 5, 0), FieldsAre(25, 16, 16, 2),
                                          FieldsAre(9, 0, 16, 2)));
}

TEST(StepTables, EqualTilesKeepTheBatchsOrder) {
  BatchOf batch;
  for (int32_t i = 0; i < 5; ++i) batch.add(kPrompt, 7, 3);
  const StepPlan plan = plan_step(batch.batch(), kHeads);
  const FilledTables tables(batch.batch(), plan, {});
  for (int32_t i = 0; i < 5; ++i) EXPECT_EQ(tables.tiles()[static_cast<size_t>(i)].sequence, i);
}

TEST(StepTables, TheNumberOfHeadsCutsTheTiles) {
  BatchOf batch;
  batch.add(kPrompt, 0, 130);
  for (const auto& [heads, sizes] : std::map<int32_t, std::vector<int32_t>>{
           {16, {2, 64, 64}}, {32, {2, 32, 32, 32, 32}}, {40, {5, 25, 25, 25, 25, 25}}}) {
    const StepPlan plan = plan_step(batch.batch(), heads);
    const FilledTables tables(batch.batch(), plan, {}, heads);
    std::vector<int32_t> found;
    for (const PromptTile& tile : tables.tiles()) found.push_back(tile.num_tokens);
    EXPECT_EQ(found, sizes) << heads << " heads";
  }
}

// What a graph is kept for: tokens, block ids and small steps in position leave it as it is.
TEST(StepTables, TheShapeChangesWithPowersOfTwoOfBlocksAlone) {
  const auto shape_at = [](int32_t position) {
    BatchOf batch;
    batch.add(kGenerated, position, 1);
    batch.set_heads({0});
    return plan_step(batch.batch(), kHeads).shape;
  };
  EXPECT_EQ(shape_at(0), shape_at(31));
  EXPECT_NE(shape_at(31), shape_at(32));
  EXPECT_NE(shape_at(63), shape_at(64));
  EXPECT_EQ(shape_at(64), shape_at(127));
  EXPECT_NE(shape_at(127), shape_at(128));
  EXPECT_EQ(shape_at(40000).max_blocks, 2048);
  EXPECT_EQ(shape_at(40000), shape_at(65535));
}

TEST(StepTables, ArraysAreAlignedAndDoNotOverlap) {
  const StepShape shape{.num_generated = 3,
                        .num_prompt = 10,
                        .num_generated_heads = 3,
                        .num_prompt_heads = 2,
                        .num_sequences = 5,
                        .num_tiles = 3,
                        .max_blocks = 2};
  alignas(16) std::byte base[4096];
  size_t bytes = 0;
  const StepTables tables = StepTables::at(base, shape, bytes);
  const std::vector<std::pair<const void*, size_t>> arrays = {
      {tables.ids, 13 * 4U},         {tables.source, 13 * 4U},   {tables.positions, 13 * 4U},
      {tables.sequences, 13 * 4U},   {tables.head_rows, 5 * 4U}, {tables.tiles, 3 * sizeof(PromptTile)},
      {tables.block_tables, 10 * 4U}};
  size_t end = 0;
  for (const auto& [array, size] : arrays) {
    const auto begin = static_cast<size_t>(static_cast<const std::byte*>(array) - base);
    EXPECT_EQ(begin % 16, 0U);
    EXPECT_GE(begin, end);
    end = begin + size;
  }
  EXPECT_GE(bytes, end);
  EXPECT_LT(bytes, end + 16);
}

constexpr Limits kLimits{.max_tokens_per_step = 96, .max_sequences = 24, .max_head_rows = 20, .context = 200};

BatchOf random_batch(std::mt19937& random) {
  const auto draw = [&](int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(random);
  };
  BatchOf batch;
  const int32_t num_spans = draw(1, kLimits.max_sequences);
  for (int32_t s = 0; s < num_spans && batch.num_tokens() < kLimits.max_tokens_per_step; ++s) {
    const int32_t room = kLimits.max_tokens_per_step - batch.num_tokens();
    const int32_t count = std::min(room, draw(0, 3) == 0 ? draw(1, 70) : draw(1, 3));
    batch.add(draw(0, 1) == 0 ? kPrompt : kGenerated, draw(0, kLimits.context - count), count);
  }
  std::set<int32_t> heads;
  for (int32_t h = draw(0, kLimits.max_head_rows); h > 0; --h) heads.insert(draw(0, batch.num_tokens() - 1));
  batch.set_heads({heads.begin(), heads.end()});
  return batch;
}

// Every token of the batch, looked up as a kernel does: from its row.
void expect_rows_find_their_tokens(const Batch& batch, const StepPlan& plan, const FilledTables& tables) {
  std::vector<bool> taken(batch.tokens.size());
  size_t token = 0;
  for (const Span& span : batch.spans) {
    for (int32_t t = 0; t < span.num_tokens; ++t, ++token) {
      const auto row = static_cast<size_t>(plan.row_of_token[token]);
      ASSERT_LT(row, taken.size());
      EXPECT_FALSE(taken[row]);
      taken[row] = true;
      EXPECT_EQ(static_cast<int32_t>(row) < plan.shape.num_generated, span.row_class == kGenerated);
      EXPECT_EQ(tables.ids()[row], batch.tokens[token].token);
      const int32_t position = tables.positions()[row];
      EXPECT_EQ(position, span.first_position + t);
      const auto block = static_cast<size_t>(position / kBlockPositions);
      EXPECT_EQ(tables.block_table(tables.sequences()[row])[block], span.block_table[block]);
    }
  }
}

void expect_tiles_cover_prompt_rows(const StepPlan& plan, const FilledTables& tables) {
  std::vector<int32_t> covered(static_cast<size_t>(plan.shape.num_rows()));
  int32_t most = std::numeric_limits<int32_t>::max();
  for (const PromptTile& tile : tables.tiles()) {
    EXPECT_LE(tile.first_position + tile.num_tokens, most);
    most = tile.first_position + tile.num_tokens;
    for (int32_t t = 0; t < tile.num_tokens; ++t) {
      const auto row = static_cast<size_t>(tile.first_row + t);
      ASSERT_LT(row, covered.size());
      ++covered[row];
      EXPECT_EQ(tables.positions()[row], tile.first_position + t);
      EXPECT_EQ(tables.sequences()[row], tile.sequence);
    }
  }
  const auto num_generated = static_cast<size_t>(plan.shape.num_generated);
  EXPECT_THAT(std::span(covered).first(num_generated), Each(0));
  EXPECT_THAT(std::span(covered).subspan(num_generated), Each(1));
}

TEST(StepTables, AnyBatchIsFoundAgainInItsTables) {
  std::mt19937 random(7);
  const size_t most = step_tables_bytes(kLimits);
  for (int32_t i = 0; i < 300; ++i) {
    SCOPED_TRACE(i);
    const BatchOf owner = random_batch(random);
    const Batch batch = owner.batch();
    const StepPlan plan = plan_step(batch, kHeads);
    const FilledTables tables(batch, plan, {});
    expect_rows_find_their_tokens(batch, plan, tables);
    expect_tiles_cover_prompt_rows(plan, tables);
    std::set<int32_t> slots;
    for (size_t h = 0; h < batch.head_rows.size(); ++h) {
      const int32_t slot = plan.slot_of_head[h];
      slots.insert(slot);
      const int32_t row = tables.head_rows()[static_cast<size_t>(slot)];
      EXPECT_EQ(row, plan.row_of_token[static_cast<size_t>(batch.head_rows[h])]);
      EXPECT_EQ(slot < plan.shape.num_generated_heads, row < plan.shape.num_generated);
    }
    EXPECT_EQ(slots.size(), batch.head_rows.size());
    size_t bytes = 0;
    StepTables::at(nullptr, plan.shape, bytes);
    EXPECT_LE(bytes, most);
    if (testing::Test::HasFailure()) return;
  }
}

// The steps that fill each of the arrays: every token a prompt of its own, at the end of the context, and a head row.
TEST(StepTables, TheLargestStepsFitIntoWhatTheLimitsSay) {
  const Limits limits{.max_tokens_per_step = 40, .max_sequences = 40, .max_head_rows = 40, .context = 1000};
  for (const RowClass row_class : {kPrompt, kGenerated}) {
    BatchOf batch;
    for (int32_t s = 0; s < limits.max_sequences; ++s) batch.add(row_class, limits.context - 1, 1);
    batch.set_heads(ascending(0, limits.max_head_rows));
    const StepPlan plan = plan_step(batch.batch(), kHeads);
    size_t bytes = 0;
    StepTables::at(nullptr, plan.shape, bytes);
    EXPECT_LE(bytes, step_tables_bytes(limits));
    if (row_class == kPrompt) {
      EXPECT_EQ(bytes, step_tables_bytes(limits));  // and no more is taken
    }
  }
}

}  // namespace
}  // namespace kipp::cuda
