// When blocks run out: who goes, what he keeps, and that the others go on.
#include "scheduler/harness.h"

namespace kipp {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Preemption, TheLatestOfTheLowestPriorityGoesFirst) {
  Harness scheduler(4, {.prefix_cache = false});
  scheduler.add({.id = 1, .prompt_ids = iota(31), .max_new_tokens = 40, .priority = 1});
  scheduler.add({.id = 2, .prompt_ids = iota(20, 100), .max_new_tokens = 40, .priority = 1});
  scheduler.add({.id = 3, .prompt_ids = iota(20, 200), .max_new_tokens = 40});
  scheduler.add({.id = 4, .prompt_ids = iota(20, 300), .max_new_tokens = 40});
  EXPECT_THAT(scheduler.run(),
              ElementsAre(prompt_rows(3, 0, 20), prompt_rows(4, 0, 20), prompt_rows(1, 0, 31), prompt_rows(2, 0, 20)));
  scheduler.run();  // 31 of request 1 fills its block
  EXPECT_THAT(scheduler.run(), ElementsAre(generated_rows(3, 21), generated_rows(4, 21), generated_rows(1, 32)));
  EXPECT_EQ(scheduler->info(2)->num_preemptions, 1);
}

TEST(Preemption, WhatIsComputedAgainKeepsItsTokensAndRowClasses) {
  Harness scheduler(4, {.prefix_cache = false});
  scheduler.add({.id = 1, .prompt_ids = iota(60), .max_new_tokens = 9});
  scheduler.add({.id = 2, .prompt_ids = iota(50, 100), .max_new_tokens = 9});
  for (int32_t i = 0; i < 5; ++i) {
    scheduler.run();
  }
  EXPECT_THAT(scheduler.run(), ElementsAre(generated_rows(1, 64)));  // its third block was the second's
  while (scheduler->stats().num_running == 1 && !HasFailure()) {
    scheduler.run();
  }
  ASSERT_TRUE(scheduler->idle() || scheduler->stats().num_waiting == 1);
  EXPECT_THAT(scheduler.run(), ElementsAre(prompt_rows(2, 0, 50)));
  const ScheduledStep generated = scheduler.next();
  EXPECT_THAT(rows_of(generated), ElementsAre(generated_rows(2, 50, 5)));
  for (int32_t i = 0; i < 5; ++i) {
    EXPECT_EQ(generated.tokens[static_cast<size_t>(i)].token, 1050 + i);
  }
  EXPECT_THAT(generated.head_rows, ElementsAre(4));
  EXPECT_EQ(scheduler.complete(generated)[0].index, 5);
  EXPECT_EQ(scheduler->stats().num_recomputed_tokens, 54U);
}

TEST(Preemption, WhatWasWrittenIsFoundAgainUnlessOthersNeededIt) {
  Harness scheduler(4);
  scheduler.add({.id = 1, .prompt_ids = iota(60), .max_new_tokens = 9});
  scheduler.add({.id = 2, .prompt_ids = iota(50, 100), .max_new_tokens = 9});
  for (int32_t i = 0; i < 6; ++i) {
    scheduler.run();
  }
  EXPECT_EQ(scheduler->info(2)->num_preemptions, 1);
  scheduler.run();
  scheduler.run();
  scheduler.run();  // the ninth token of the first
  EXPECT_THAT(scheduler.run(), ElementsAre(prompt_rows(2, 32, 18)));
}

TEST(Preemption, WithLookAheadBlocksComeFreeWhenTheStepThatNamesThemIsCollected) {
  Harness scheduler(2, {.look_ahead = true, .prefix_cache = false});
  scheduler.add({.id = 1, .prompt_ids = iota(31), .max_new_tokens = 9});
  scheduler.add({.id = 2, .prompt_ids = iota(20, 100), .max_new_tokens = 9});
  const ScheduledStep prompts = scheduler.next();
  const ScheduledStep both = scheduler.next();
  EXPECT_THAT(rows_of(both), ElementsAre(generated_rows(1, 31), generated_rows(2, 20)));
  scheduler.complete(prompts);
  EXPECT_EQ(scheduler->next_step(), std::nullopt);  // the second gives its block up, the first waits for it
  EXPECT_EQ(scheduler->stats().num_preemptions, 1U);
  EXPECT_EQ(scheduler->stats().num_blocks_used, 2);
  const auto tokens = scheduler.complete(both);
  EXPECT_EQ(tokens.size(), 2U);  // the token of whoever was preempted counts
  EXPECT_THAT(scheduler.run(), ElementsAre(generated_rows(1, 32)));
  EXPECT_EQ(scheduler->tokens({2, 0}).size(), 22U);
}

TEST(Preemption, WhoeverWasPreemptedComesBackWhenItsNewestTokenIsKnown) {
  Harness scheduler(3, {.look_ahead = true});
  scheduler.add({.id = 1, .prompt_ids = iota(20), .max_new_tokens = 9, .priority = 1});
  const ScheduledStep prompt = scheduler.next();
  scheduler.add({.id = 2, .prompt_ids = iota(90, 100), .max_new_tokens = 2});
  EXPECT_EQ(scheduler->next_step(), std::nullopt);  // needs all blocks, and takes them from the first
  EXPECT_EQ(scheduler->stats().num_preemptions, 1U);
  ASSERT_TRUE(scheduler->cancel(2));
  EXPECT_EQ(scheduler->next_step(), std::nullopt);
  EXPECT_EQ(scheduler.complete(prompt).size(), 1U);
  EXPECT_THAT(scheduler.run(), ElementsAre(prompt_rows(1, 0, 20)));
  EXPECT_THAT(scheduler.run(), ElementsAre(generated_rows(1, 20)));
}

TEST(Preemption, EverybodyFinishesInAPoolForOne) {
  for (const bool look_ahead : {false, true}) {
    Harness scheduler(3, {.look_ahead = look_ahead});
    for (uint64_t id = 0; id < 5; ++id) {
      scheduler.add({.id = id, .prompt_ids = iota(25, static_cast<int32_t>(id) * 100), .max_new_tokens = 70});
    }
    size_t num_steps = 0;
    uint64_t oldest = 0;
    while (!scheduler->idle() && ++num_steps < 1000 && !HasFailure()) {
      scheduler.complete(scheduler.next());
      for (const RequestInfo& info : scheduler->take_ended()) {
        EXPECT_EQ(info.id, oldest++);  // in the order in which they came
        EXPECT_THAT(info.num_new_tokens, ElementsAre(70));
      }
    }
    EXPECT_EQ(oldest, 5U);
    EXPECT_GT(scheduler->stats().num_preemptions, 0U);
    EXPECT_EQ(scheduler->stats().num_blocks_used, 0);
    EXPECT_THAT(scheduler->take_ended(), IsEmpty());
  }
}

}  // namespace
}  // namespace kipp
