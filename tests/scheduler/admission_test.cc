// Who may run: what never fits, what is needed, and whose place may be taken.
#include "scheduler/harness.h"

namespace kipp {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

Error refusal(Harness& scheduler, SchedulerRequest request) {
  const auto added = scheduler->add(std::move(request));
  EXPECT_FALSE(added);
  return added ? Error{ErrorCode::kInternal, "admitted"} : added.error();
}

TEST(Admission, WhatNeverFitsIsRefusedAtOnceWithBothNumbers) {
  Harness scheduler(3, {.context = 100});
  const Error context = refusal(scheduler, {.id = 1, .prompt_ids = iota(90), .max_new_tokens = 11});
  EXPECT_EQ(context.code, ErrorCode::kCapacity);
  EXPECT_THAT(context.message, HasSubstr("prompt of 90 tokens and 11 new ones exceed the context of 100 by 1"));
  const Error huge = refusal(scheduler, {.id = 1, .prompt_ids = iota(1), .max_new_tokens = 2147483647});
  EXPECT_THAT(huge.message, HasSubstr("by 2147483548"));
  const Error pool = refusal(scheduler, {.id = 1, .prompt_ids = iota(90), .max_new_tokens = 8});
  EXPECT_EQ(pool.code, ErrorCode::kCapacity);
  EXPECT_THAT(pool.message, HasSubstr("need 4 KV blocks of 32 positions, the pool has 3"));
  scheduler.add({.id = 1, .prompt_ids = iota(90), .max_new_tokens = 7});  // 96 positions are evaluated
  EXPECT_EQ(scheduler->stats().num_refused[static_cast<size_t>(RefusalReason::kContext)], 2U);
  EXPECT_EQ(scheduler->stats().num_refused[static_cast<size_t>(RefusalReason::kPool)], 1U);
}

TEST(Admission, APromptMayFillTheContextButForOneToken) {
  Harness scheduler(9, {.context = 100});
  EXPECT_EQ(refusal(scheduler, {.id = 1, .prompt_ids = iota(100)}).code, ErrorCode::kCapacity);
  scheduler.add({.id = 1, .prompt_ids = iota(99)});
  scheduler.run_all();
  EXPECT_THAT(scheduler->take_ended()[0].num_new_tokens, ElementsAre(1));
}

TEST(Admission, SenselessRequestsAreRefused) {
  Harness scheduler(3);
  scheduler.add({.id = 1, .prompt_ids = iota(3)});
  EXPECT_THAT(refusal(scheduler, {.id = 1, .prompt_ids = iota(3)}).message, HasSubstr("request 1 is known"));
  EXPECT_THAT(refusal(scheduler, {.id = 2}).message, HasSubstr("prompt is empty"));
  for (SchedulerRequest request : {SchedulerRequest{.id = 2, .prompt_ids = {1}, .max_new_tokens = 0},
                                   SchedulerRequest{.id = 2, .prompt_ids = {1}, .num_choices = 0}}) {
    EXPECT_EQ(refusal(scheduler, std::move(request)).code, ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(scheduler->stats().num_refused[static_cast<size_t>(RefusalReason::kInvalid)], 4U);
  BlockPool pool(1);
  EXPECT_FALSE(Scheduler::create(pool, {.max_tokens_per_step = 0}));
  EXPECT_THAT(Scheduler::create(pool, {.max_head_rows = -1}).error().message, HasSubstr("max_head_rows"));
}

TEST(Admission, BlocksAreTakenAsTheyAreNeededAndNotForAllThatMayCome) {
  Harness scheduler(4);
  for (uint64_t id = 1; id <= 4; ++id) {  // each may need three blocks one day
    scheduler.add({.id = id, .prompt_ids = iota(20, static_cast<int32_t>(id) * 100), .max_new_tokens = 70});
  }
  EXPECT_EQ(scheduler.run().size(), 4U);
}

TEST(Admission, TheNextTokenNeedsItsPlaceToo) {
  Harness scheduler(3);
  scheduler.add({.id = 1, .prompt_ids = iota(32), .max_new_tokens = 2});
  scheduler.add({.id = 2, .prompt_ids = iota(32, 100), .max_new_tokens = 2});
  EXPECT_THAT(scheduler.run(), ElementsAre(prompt_rows(1, 0, 32)));  // two blocks each
  EXPECT_EQ(scheduler->stats().num_waiting, 1);
}

TEST(Admission, WhoeverWaitsForBlocksIsNotPassed) {
  Harness scheduler(4);
  scheduler.add({.id = 1, .prompt_ids = iota(64), .max_new_tokens = 3});
  scheduler.add({.id = 2, .prompt_ids = iota(64, 100), .max_new_tokens = 3});
  scheduler.add({.id = 3, .prompt_ids = iota(4, 200), .max_new_tokens = 3});  // would fit
  EXPECT_THAT(scheduler.run(), ElementsAre(prompt_rows(1, 0, 64)));
  EXPECT_EQ(scheduler->stats().num_waiting, 2);
  scheduler.run();
  scheduler.run();
  EXPECT_THAT(scheduler.run(), ElementsAre(prompt_rows(2, 0, 64), prompt_rows(3, 0, 4)));
}

TEST(Admission, CachedBlocksAreFree) {
  Harness scheduler(3);
  scheduler.add({.id = 1, .prompt_ids = iota(90)});
  scheduler.run_all();
  EXPECT_EQ(scheduler->stats().num_blocks_cached, 2);
  EXPECT_EQ(scheduler->stats().num_blocks_free, 1);
  EXPECT_EQ(scheduler->stats().num_blocks_used, 0);
  scheduler.add({.id = 2, .prompt_ids = iota(90, 100)});
  EXPECT_THAT(scheduler.run(), ElementsAre(prompt_rows(2, 0, 90)));
}

TEST(Admission, ACachedPrefixIsNotNeededAgain) {
  Harness scheduler(5);
  scheduler.add({.id = 1, .prompt_ids = iota(100), .max_new_tokens = 9});
  scheduler.run();
  EXPECT_EQ(scheduler->stats().num_blocks_used, 4);
  scheduler.add({.id = 2, .prompt_ids = iota(100), .max_new_tokens = 9});  // one block of its own
  EXPECT_THAT(scheduler.run(), ElementsAre(generated_rows(1, 100), prompt_rows(2, 96, 4)));
  EXPECT_EQ(scheduler->stats().num_blocks_used, 5);
}

TEST(Admission, ACachedPrefixThatNobodyUsesIsTakenOutOfWhatIsFree) {
  Harness scheduler(5);
  scheduler.add({.id = 1, .prompt_ids = iota(70)});
  scheduler.run_all();
  scheduler.add({.id = 2, .prompt_ids = iota(60, 100), .max_new_tokens = 9});
  scheduler.run();
  // Three blocks are free, two of them the cached prefix: with it, one is missing.
  scheduler.add({.id = 3, .prompt_ids = iota(110), .max_new_tokens = 9});
  EXPECT_THAT(scheduler.run(), ElementsAre(generated_rows(2, 60)));
  EXPECT_EQ(scheduler->stats().num_waiting, 1);
}

TEST(Admission, HigherPriorityTakesTheBlocksOfLower) {
  Harness scheduler(4);
  scheduler.add({.id = 1, .prompt_ids = iota(40), .max_new_tokens = 9, .priority = 1});
  scheduler.add({.id = 2, .prompt_ids = iota(40, 100), .max_new_tokens = 9, .priority = 1});
  scheduler.run();
  scheduler.add({.id = 3, .prompt_ids = iota(40, 200), .max_new_tokens = 9});
  EXPECT_THAT(scheduler.run(), ElementsAre(prompt_rows(3, 0, 40), generated_rows(1, 40)));
  EXPECT_EQ(scheduler->stats().num_preemptions, 1U);
  EXPECT_EQ(scheduler->info(2)->num_preemptions, 1);
}

TEST(Admission, HigherPriorityTakesTheSlotOfLower) {
  Harness scheduler(9, {.max_sequences = 1});
  scheduler.add({.id = 1, .prompt_ids = iota(4), .max_new_tokens = 9, .priority = 1});
  scheduler.run();
  scheduler.add({.id = 2, .prompt_ids = iota(4, 100), .max_new_tokens = 9});
  EXPECT_THAT(scheduler.run(), ElementsAre(prompt_rows(2, 0, 4)));
  scheduler.add({.id = 3, .prompt_ids = iota(4, 200), .max_new_tokens = 9});  // not that of its equals
  EXPECT_THAT(scheduler.run(), ElementsAre(generated_rows(2, 4)));
}

TEST(Admission, NobodyLosesHisBlocksIfTheyWouldNotBeEnough) {
  Harness scheduler(4);
  scheduler.add({.id = 1, .prompt_ids = iota(60), .max_new_tokens = 9});
  scheduler.add({.id = 2, .prompt_ids = iota(20, 100), .max_new_tokens = 9, .priority = 1});
  scheduler.run();
  scheduler.add({.id = 3, .prompt_ids = iota(90, 200), .max_new_tokens = 2});
  EXPECT_THAT(scheduler.run(), UnorderedElementsAre(generated_rows(1, 60), generated_rows(2, 20)));
  EXPECT_EQ(scheduler->stats().num_preemptions, 0U);
}

TEST(Admission, BlocksThatOthersHeldBeforeAreNotCountedOn) {
  BlockPool pool(4);
  BlockTable other(pool);
  ASSERT_TRUE(other.grow(64));
  const auto scheduler = *Scheduler::create(pool, {});
  EXPECT_THAT(scheduler->add({.id = 1, .prompt_ids = iota(90)}).error().message, HasSubstr("the pool has 2"));
  ASSERT_TRUE(scheduler->add({.id = 1, .prompt_ids = iota(60)}));
  EXPECT_TRUE(scheduler->next_step());
  EXPECT_TRUE(scheduler->check_invariants());
}

}  // namespace
}  // namespace kipp
