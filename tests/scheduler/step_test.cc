// How a step is cut: budget, order, row classes, head rows.
#include "scheduler/harness.h"

namespace kipp {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Step, APromptIsCutIntoChunksAndItsLastRowDraws) {
  Harness scheduler(8, {.max_tokens_per_step = 40});
  scheduler.add({.id = 7, .prompt_ids = iota(100, 50), .max_new_tokens = 2});
  const ScheduledStep first = scheduler.next();
  EXPECT_THAT(rows_of(first), ElementsAre(prompt_rows(7, 0, 40)));
  EXPECT_EQ(first.spans[0].block_table.size(), 2U);
  EXPECT_THAT(first.head_rows, IsEmpty());
  EXPECT_EQ(first.tokens[39].token, 89);
  EXPECT_THAT(scheduler.complete(first), IsEmpty());
  EXPECT_THAT(scheduler.run(), ElementsAre(prompt_rows(7, 40, 40)));
  const ScheduledStep last = scheduler.next();
  EXPECT_THAT(rows_of(last), ElementsAre(prompt_rows(7, 80, 20)));
  EXPECT_THAT(last.head_rows, ElementsAre(19));
  EXPECT_EQ(last.rows[0].position, 100);
  EXPECT_TRUE(last.rows[0].is_sampled);
  const auto tokens = scheduler.complete(last);
  ASSERT_EQ(tokens.size(), 1U);
  EXPECT_EQ(tokens[0].token, 1100);
  EXPECT_EQ(tokens[0].index, 0);
  const ScheduledStep decode = scheduler.next();
  EXPECT_THAT(rows_of(decode), ElementsAre(generated_rows(7, 100)));
  EXPECT_EQ(decode.tokens[0].token, 1100);
  EXPECT_EQ(decode.tokens[0].from_row, -1);
  EXPECT_EQ(scheduler.complete(decode)[0].ended, EndReason::kLength);
  EXPECT_TRUE(scheduler->idle());
  EXPECT_EQ(scheduler->next_step(), std::nullopt);
}

TEST(Step, DecodingComesFirstAndPromptsGetWhatIsLeft) {
  Harness scheduler(32, {.max_tokens_per_step = 10});
  scheduler.add({.id = 1, .prompt_ids = iota(4), .max_new_tokens = 9});
  scheduler.add({.id = 2, .prompt_ids = iota(4, 10), .max_new_tokens = 9});
  scheduler.run();
  scheduler.add({.id = 3, .prompt_ids = iota(30, 20), .max_new_tokens = 9});
  scheduler.add({.id = 4, .prompt_ids = iota(30, 60), .max_new_tokens = 9});
  for (int32_t i = 0; i < 3; ++i) {
    EXPECT_THAT(scheduler.run(),
                ElementsAre(generated_rows(1, 4 + i), generated_rows(2, 4 + i), prompt_rows(3, 8 * i, 8)));
  }
  // Both classes, and what one prompt leaves is the next one's.
  EXPECT_THAT(scheduler.run(),
              ElementsAre(generated_rows(1, 7), generated_rows(2, 7), prompt_rows(3, 24, 6), prompt_rows(4, 0, 2)));
}

TEST(Step, APromptIsNotStarvedByLaterOnesThatDecode) {
  Harness scheduler(32, {.max_tokens_per_step = 2, .prefix_cache = false});
  scheduler.add({.id = 1, .prompt_ids = iota(1), .max_new_tokens = 9, .priority = 1});
  scheduler.add({.id = 2, .prompt_ids = iota(1, 9), .max_new_tokens = 9, .priority = 1});
  scheduler.run();
  scheduler.add({.id = 3, .prompt_ids = iota(3, 20), .max_new_tokens = 9});
  EXPECT_THAT(scheduler.run(), ElementsAre(prompt_rows(3, 0, 1), generated_rows(1, 1)));
  EXPECT_THAT(scheduler.run(), ElementsAre(prompt_rows(3, 1, 1), generated_rows(1, 2)));
}

TEST(Step, PriorityGoesBeforeArrivalAndArrivalDecidesTheRest) {
  Harness scheduler(32, {.max_tokens_per_step = 12});
  scheduler.add({.id = 1, .prompt_ids = iota(5), .priority = 2});
  scheduler.add({.id = 2, .prompt_ids = iota(5, 10), .priority = -1});
  scheduler.add({.id = 3, .prompt_ids = iota(5, 20), .priority = 2});
  scheduler.add({.id = 4, .prompt_ids = iota(5, 30), .priority = -1});
  EXPECT_THAT(scheduler.run(), ElementsAre(prompt_rows(2, 0, 5), prompt_rows(4, 0, 5), prompt_rows(1, 0, 2)));
  EXPECT_THAT(scheduler.run(), ElementsAre(prompt_rows(1, 2, 3), prompt_rows(3, 0, 5)));
}

TEST(Step, WithoutAHeadRowTheLastTokenOfAPromptWaits) {
  Harness scheduler(32, {.max_head_rows = 1});
  scheduler.add({.id = 1, .prompt_ids = iota(5)});
  scheduler.add({.id = 2, .prompt_ids = iota(5, 10)});
  scheduler.add({.id = 3, .prompt_ids = iota(1, 20)});
  EXPECT_THAT(scheduler.run(), ElementsAre(prompt_rows(1, 0, 5), prompt_rows(2, 0, 4)));
  EXPECT_THAT(scheduler.run(), ElementsAre(prompt_rows(2, 4, 1)));
  EXPECT_THAT(scheduler.run(), ElementsAre(prompt_rows(3, 0, 1)));
}

TEST(Step, NoMoreSequencesRunThanTheStepHolds) {
  Harness scheduler(32, {.max_sequences = 2});
  for (uint64_t id = 1; id <= 3; ++id) {
    scheduler.add({.id = id, .prompt_ids = iota(3, static_cast<int32_t>(id) * 10), .max_new_tokens = 2});
  }
  const ScheduledStep first = scheduler.next();
  EXPECT_THAT(rows_of(first), ElementsAre(prompt_rows(1, 0, 3), prompt_rows(2, 0, 3)));
  EXPECT_NE(first.spans[0].slot, first.spans[1].slot);
  scheduler.complete(first);
  const ScheduledStep second = scheduler.next();
  EXPECT_EQ(second.spans[0].slot, first.spans[0].slot);  // as long as it runs
  scheduler.complete(second);
  EXPECT_THAT(scheduler.run(), ElementsAre(prompt_rows(3, 0, 3)));
}

TEST(Step, TheLastTokenIsNeverEvaluated) {
  Harness scheduler(1);
  scheduler.add({.id = 1, .prompt_ids = iota(32)});  // one new token: it needs no position in the pool
  EXPECT_THAT(scheduler.run_all(), ElementsAre(prompt_rows(1, 0, 32)));
}

TEST(Step, PromptLogitsMakeEveryPromptRowAHeadRow) {
  Harness scheduler(8, {.max_head_rows = 4});
  const auto tokens = iota(70);
  scheduler.add({.id = 1, .prompt_ids = tokens});
  scheduler.run_all();
  scheduler.add({.id = 2, .prompt_ids = tokens, .max_new_tokens = 2, .prompt_logits = true});
  for (int32_t begin = 0; begin < 70; begin += 4) {  // nothing comes from the cache
    const ScheduledStep step = scheduler.next();
    const int32_t count = std::min(4, 70 - begin);
    ASSERT_THAT(rows_of(step), ElementsAre(prompt_rows(2, begin, count)));
    ASSERT_EQ(step.head_rows.size(), static_cast<size_t>(count));
    for (int32_t i = 0; i < count; ++i) {
      EXPECT_EQ(step.rows[static_cast<size_t>(i)].position, begin + i + 1);
      EXPECT_EQ(step.rows[static_cast<size_t>(i)].is_sampled, begin + i + 1 == 70);
    }
    EXPECT_EQ(scheduler.complete(step).size(), begin + count == 70 ? 1U : 0U);
  }
  EXPECT_THAT(scheduler.run(), ElementsAre(generated_rows(2, 70)));
  EXPECT_TRUE(scheduler->idle());
}

}  // namespace
}  // namespace kipp
