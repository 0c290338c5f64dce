// A valid batch, broken in every way one at a time; each error names the place.
#include "backend/validate_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace kipp {
namespace {

using testing::HasSubstr;

constexpr int32_t kVocab = 1000;
constexpr int32_t kNumBlocks = 10;

// Two sequences: positions 30 … 34 in blocks 4 and 7, and position 64 in blocks 4, 9 and 2. Block 4 of the second is
// complete and only read there, but the first writes it: so the second has 3 instead.
struct BatchData {
  std::vector<int32_t> first_table = {4, 7};
  std::vector<int32_t> second_table = {3, 9, 2};
  std::vector<Span> spans = {
      {.slot = 0, .first_position = 30, .num_tokens = 5, .row_class = RowClass::kPrompt, .block_table = {}},
      {.slot = 1, .first_position = 64, .num_tokens = 1, .row_class = RowClass::kGenerated, .block_table = {}}};
  std::vector<TokenRef> tokens = {{.token = 0}, {.token = kVocab - 1}, {.token = 5},
                                  {.token = 6}, {.token = 7},          {.token = -1, .from_row = 2}};
  std::vector<int32_t> head_rows = {0, 4, 5};
  Limits limits = {.max_tokens_per_step = 6, .max_sequences = 2, .max_head_rows = 3, .context = 65};
  int32_t num_previous_rows = 3;

  Result<void> validate() {
    if (!spans.empty() && spans[0].block_table.data() == nullptr) {
      spans[0].block_table = first_table;
    }
    if (spans.size() > 1 && spans[1].block_table.data() == nullptr) {
      spans[1].block_table = second_table;
    }
    return validate_batch({.spans = spans, .tokens = tokens, .head_rows = head_rows}, limits, kNumBlocks, kVocab,
                          num_previous_rows);
  }
};

TEST(ValidateBatchTest, AValidBatchPasses) {
  BatchData batch;
  const auto result = batch.validate();
  EXPECT_TRUE(result) << result.error().message;
}

TEST(ValidateBatchTest, CompleteBlocksMayBeShared) {
  BatchData batch;
  batch.first_table = {3, 7};
  batch.spans[0].first_position = 32;
  batch.spans[0].num_tokens = 5;
  const auto result = batch.validate();  // both sequences read block 3
  EXPECT_TRUE(result) << result.error().message;
}

TEST(ValidateBatchTest, NoHeadRowsIsValid) {
  BatchData batch;
  batch.head_rows.clear();
  EXPECT_TRUE(batch.validate());
}

struct Fault {
  const char* name;
  std::function<void(BatchData&)> make;
  const char* message;  // a part of it
};

class ValidateBatchFaultTest : public testing::TestWithParam<Fault> {};

TEST_P(ValidateBatchFaultTest, IsRefusedByName) {
  BatchData batch;
  GetParam().make(batch);
  const auto result = batch.validate();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(result.error().message, HasSubstr(GetParam().message));
}

const Fault kFaults[] = {
    {"no_spans", [](BatchData& b) { b.spans.clear(); }, "1 to 2 spans, found 0"},
    {"no_tokens", [](BatchData& b) { b.tokens.clear(); }, "1 to 6 tokens, found 0"},
    {"too_many_spans", [](BatchData& b) { b.limits.max_sequences = 1; }, "1 to 1 spans, found 2"},
    {"too_many_tokens", [](BatchData& b) { b.limits.max_tokens_per_step = 5; }, "1 to 5 tokens, found 6"},
    {"too_many_head_rows", [](BatchData& b) { b.limits.max_head_rows = 2; }, "0 to 2 head rows, found 3"},
    {"negative_slot", [](BatchData& b) { b.spans[1].slot = -1; }, "span 1: expected a slot in [0, 2), found -1"},
    {"slot_too_large", [](BatchData& b) { b.spans[1].slot = 2; }, "span 1: expected a slot in [0, 2), found 2"},
    {"slot_twice", [](BatchData& b) { b.spans[1].slot = 0; }, "span 1: slot 0"},
    {"empty_span", [](BatchData& b) { b.spans[1].num_tokens = 0; }, "span 1: expected at least one token"},
    {"negative_count", [](BatchData& b) { b.spans[1].num_tokens = -5; }, "span 1: expected at least one token"},
    {"negative_position", [](BatchData& b) { b.spans[0].first_position = -1; },
     "span 0: expected positions in [0, 65)"},
    {"beyond_context", [](BatchData& b) { b.limits.context = 64; }, "span 1: expected positions in [0, 64)"},
    {"position_overflow", [](BatchData& b) { b.spans[1].first_position = 2147483647; }, "span 1: expected positions"},
    {"count_overflow", [](BatchData& b) { b.spans[1].num_tokens = 2147483647; }, "span 1: expected positions"},
    {"short_table", [](BatchData& b) { b.first_table.pop_back(); },
     "span 0: positions below 35 need a table of 2 blocks, found 1"},
    {"long_table", [](BatchData& b) { b.second_table.push_back(1); },
     "span 1: positions below 65 need a table of 3 blocks, found 4"},
    {"negative_block", [](BatchData& b) { b.second_table[1] = -1; },
     "span 1: block_table[1]: expected a block in [0, 10), found -1"},
    {"block_too_large", [](BatchData& b) { b.second_table[1] = 10; },
     "span 1: block_table[1]: expected a block in [0, 10), found 10"},
    {"block_twice", [](BatchData& b) { b.first_table[0] = 7; }, "span 0: block 7 is written"},
    {"written_block_read", [](BatchData& b) { b.second_table[0] = 7; }, "span 0: block 7 is written"},
    {"written_block_written", [](BatchData& b) { b.second_table[2] = 7; }, "block 7 is written"},
    {"too_few_tokens", [](BatchData& b) { b.tokens.pop_back(); }, "6 tokens, but 5"},
    {"negative_token", [](BatchData& b) { b.tokens[2].token = -1; }, "token 2: expected an id in [0, 1000), found -1"},
    {"token_too_large", [](BatchData& b) { b.tokens[2].token = kVocab; },
     "token 2: expected an id in [0, 1000), found 1000"},
    {"row_too_large", [](BatchData& b) { b.tokens[5].from_row = 3; }, "token 5: expected a row"},
    {"nothing_sampled", [](BatchData& b) { b.num_previous_rows = 0; }, "token 5: expected a row"},
    {"head_row_negative", [](BatchData& b) { b.head_rows[0] = -1; }, "head_rows[0]"},
    {"head_row_too_large", [](BatchData& b) { b.head_rows[2] = 6; },
     "head_rows[2]: expected ascending rows in [0, 6), found 6"},
    {"head_row_twice", [](BatchData& b) { b.head_rows[1] = 0; }, "head_rows[1]"},
    {"head_rows_descend", [](BatchData& b) { b.head_rows = {4, 0}; }, "head_rows[1]"},
};

INSTANTIATE_TEST_SUITE_P(Faults, ValidateBatchFaultTest, testing::ValuesIn(kFaults),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace kipp
