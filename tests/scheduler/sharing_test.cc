// What is computed once for several: cached prefixes, equal prompts that run together, the choices of a request.
#include "scheduler/harness.h"

namespace kipp {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Sharing, AnEqualPromptIsComputedFromItsLastBlockOn) {
  Harness scheduler(16);
  scheduler.add({.id = 1, .prompt_ids = iota(100)});
  scheduler.run_all();
  scheduler.add({.id = 2, .prompt_ids = iota(100)});
  EXPECT_THAT(scheduler.run(), ElementsAre(prompt_rows(2, 96, 4)));
  const auto ended = scheduler->take_ended();
  ASSERT_EQ(ended.size(), 2U);
  EXPECT_EQ(ended[0].num_cached_tokens, 0);
  EXPECT_EQ(ended[1].num_cached_tokens, 96);
  EXPECT_EQ(scheduler->stats().num_prefix_query_tokens, 200U);
  EXPECT_EQ(scheduler->stats().num_prefix_hit_tokens, 96U);
}

TEST(Sharing, OneTokenAtLeastIsComputed) {
  Harness scheduler(16);
  for (uint64_t id = 1; id <= 2; ++id) {
    scheduler.add({.id = id, .prompt_ids = iota(64)});
    EXPECT_THAT(scheduler.run(), ElementsAre(id == 1 ? prompt_rows(1, 0, 64) : prompt_rows(2, 32, 32)));
  }
}

TEST(Sharing, BlocksAreFoundWhileTheirSequenceRuns) {
  Harness scheduler(16, {.max_tokens_per_step = 64});
  scheduler.add({.id = 1, .prompt_ids = iota(40), .max_new_tokens = 50});
  scheduler.run();
  scheduler.add({.id = 2, .prompt_ids = iota(40), .max_new_tokens = 50});
  EXPECT_THAT(scheduler.run(), ElementsAre(generated_rows(1, 40), prompt_rows(2, 32, 8)));
}

TEST(Sharing, EqualPromptsThatRunTogetherArePrefilledOnce) {
  Harness scheduler(16, {.max_tokens_per_step = 40});
  scheduler.add({.id = 1, .prompt_ids = iota(100), .max_new_tokens = 9});
  scheduler.add({.id = 2, .prompt_ids = iota(100), .max_new_tokens = 9});
  EXPECT_THAT(scheduler.run(), ElementsAre(prompt_rows(1, 0, 40)));
  EXPECT_THAT(scheduler.run(), ElementsAre(prompt_rows(1, 40, 40)));
  EXPECT_THAT(scheduler.run(), ElementsAre(prompt_rows(1, 80, 20)));
  EXPECT_THAT(scheduler.run(), ElementsAre(generated_rows(1, 100), prompt_rows(2, 96, 4)));
  EXPECT_EQ(scheduler->stats().num_blocks_used, 5);
}

TEST(Sharing, OthersAreNotHeldUpBySomebodyWhoWaitsForAPrefix) {
  Harness scheduler(16, {.max_tokens_per_step = 60});
  scheduler.add({.id = 1, .prompt_ids = iota(100), .max_new_tokens = 9});
  scheduler.add({.id = 2, .prompt_ids = iota(100), .max_new_tokens = 9});
  scheduler.add({.id = 3, .prompt_ids = iota(40, 500), .max_new_tokens = 9});
  scheduler.run();
  EXPECT_THAT(scheduler.run(), ElementsAre(prompt_rows(1, 60, 40), prompt_rows(3, 0, 20)));
  EXPECT_THAT(scheduler.run(), ElementsAre(generated_rows(1, 100), prompt_rows(2, 96, 4), prompt_rows(3, 20, 20)));
}

TEST(Sharing, WhenTheFirstIsCancelledTheSecondTakesOver) {
  for (const bool look_ahead : {false, true}) {
    Harness scheduler(16, {.max_tokens_per_step = 40, .look_ahead = look_ahead});
    scheduler.add({.id = 1, .prompt_ids = iota(100), .max_new_tokens = 9});
    scheduler.add({.id = 2, .prompt_ids = iota(100), .max_new_tokens = 9});
    scheduler.add({.id = 3, .prompt_ids = iota(100), .max_new_tokens = 9});
    scheduler.run();
    const ScheduledStep cut = scheduler.next();
    ASSERT_TRUE(scheduler->cancel(1));
    if (look_ahead) {
      const ScheduledStep next = scheduler.next();  // the block of the first step was its
      EXPECT_THAT(rows_of(next), ElementsAre(prompt_rows(2, 32, 40)));
      scheduler.complete(cut);
      scheduler.complete(next);
    } else {
      scheduler.complete(cut);
      EXPECT_THAT(scheduler.run(), ElementsAre(prompt_rows(2, 32, 40)));
    }
    EXPECT_THAT(scheduler.run(), ElementsAre(prompt_rows(2, 72, 28)));
    EXPECT_THAT(scheduler.run(), ElementsAre(generated_rows(2, 100), prompt_rows(3, 96, 4)));
  }
}

TEST(Sharing, ManyRequestsPrefillTheirSystemPromptOnce) {
  Harness scheduler(400, {.max_tokens_per_step = 256, .max_sequences = 64});
  for (int32_t id = 0; id < 64; ++id) {
    auto tokens = iota(1000);
    const auto own = iota(20, 10000 * (id + 1));
    tokens.insert(tokens.end(), own.begin(), own.end());
    scheduler.add({.id = static_cast<uint64_t>(id), .prompt_ids = tokens, .max_new_tokens = 3});
  }
  // Of 1,000 tokens 992 fill blocks.
  EXPECT_EQ(num_prompt_rows(scheduler.run_all()), 992 + 64 * 28);
  EXPECT_EQ(scheduler->stats().num_preemptions, 0U);
  EXPECT_LE(scheduler->stats().num_steps, 16U);
}

TEST(Sharing, OtherSaltsShareNothing) {
  Harness scheduler(16);
  scheduler.add({.id = 1, .prompt_ids = iota(100), .max_new_tokens = 9, .cache_salt = "a"});
  scheduler.add({.id = 2, .prompt_ids = iota(100), .max_new_tokens = 9, .cache_salt = "b"});
  EXPECT_THAT(scheduler.run(), ElementsAre(prompt_rows(1, 0, 100), prompt_rows(2, 0, 100)));
  scheduler.add({.id = 3, .prompt_ids = iota(100)});
  EXPECT_THAT(scheduler.run().back(), prompt_rows(3, 0, 100));
  EXPECT_EQ(scheduler->stats().num_prefix_hit_tokens, 0U);
}

TEST(Sharing, WithoutACacheRequestsShareNothing) {
  Harness scheduler(16, {.prefix_cache = false});
  scheduler.add({.id = 1, .prompt_ids = iota(100)});
  scheduler.add({.id = 2, .prompt_ids = iota(100)});
  EXPECT_THAT(scheduler.run(), ElementsAre(prompt_rows(1, 0, 100), prompt_rows(2, 0, 100)));
  scheduler.add({.id = 3, .prompt_ids = iota(100)});
  EXPECT_THAT(scheduler.run(), ElementsAre(prompt_rows(3, 0, 100)));
}

TEST(Sharing, AnAnswerThatComesBackInAPromptIsComputedAsAPrompt) {
  Harness scheduler(16);
  scheduler.add({.id = 1, .prompt_ids = iota(40), .max_new_tokens = 60});
  scheduler.run_all();
  auto tokens = iota(40);
  const auto answer = iota(60, 1040);
  tokens.insert(tokens.end(), answer.begin(), answer.end());
  scheduler.add({.id = 2, .prompt_ids = tokens});
  EXPECT_THAT(scheduler.run(), ElementsAre(prompt_rows(2, 32, 68)));
}

TEST(Sharing, NobodyWaitsForRowsOfTheOtherClass) {
  Harness scheduler(7, {.max_tokens_per_step = 50});
  scheduler.add({.id = 1, .prompt_ids = iota(40), .max_new_tokens = 60});
  for (int32_t i = 0; i < 40; ++i) {
    scheduler.run();
  }
  scheduler.add({.id = 2, .prompt_ids = iota(220, 5000), .priority = -1});  // takes the whole pool
  while (scheduler->stats().num_waiting + scheduler->stats().num_running == 2 && !HasFailure()) {
    scheduler.run();
  }
  auto tokens = iota(40);
  const auto answer = iota(40, 1040);
  tokens.insert(tokens.end(), answer.begin(), answer.end());
  scheduler.add({.id = 3, .prompt_ids = tokens, .max_new_tokens = 9});
  EXPECT_THAT(scheduler.run(), ElementsAre(prompt_rows(1, 0, 40)));
  EXPECT_THAT(scheduler.run(), ElementsAre(generated_rows(1, 40, 40), prompt_rows(3, 32, 10)));
}

TEST(Sharing, ChoicesArePrefilledOnceAndCopyTheBlockThatIsNotFull) {
  for (const bool prefix_cache : {false, true}) {
    Harness scheduler(16, {.prefix_cache = prefix_cache});
    scheduler.add({.id = 1, .prompt_ids = iota(75), .max_new_tokens = 9, .num_choices = 3});
    EXPECT_THAT(scheduler.run(), ElementsAre(prompt_rows(1, 0, 75)));
    const ScheduledStep fork = scheduler.next();
    EXPECT_THAT(rows_of(fork), ElementsAre(generated_rows(1, 75), prompt_rows(1, 74, 1, 1), prompt_rows(1, 74, 1, 2)));
    const auto& tables = fork.spans;
    EXPECT_THAT(fork.copy_from, ElementsAre(tables[0].block_table[2], tables[0].block_table[2]));
    EXPECT_THAT(fork.copy_to, ElementsAre(tables[1].block_table[2], tables[2].block_table[2]));
    EXPECT_EQ(tables[1].block_table[1], tables[0].block_table[1]);
    EXPECT_EQ(fork.rows[2].position, 75);
    EXPECT_EQ(fork.rows[2].sequence, (SequenceId{1, 2}));
    EXPECT_EQ(scheduler->stats().num_blocks_used, 5);
    scheduler.complete(fork);
    scheduler.run_all();
    EXPECT_THAT(scheduler->take_ended()[0].num_new_tokens, ElementsAre(9, 9, 9));
  }
}

TEST(Sharing, WithOneTokenBehindFullBlocksNothingIsCopied) {
  Harness scheduler(16);
  scheduler.add({.id = 1, .prompt_ids = iota(65), .max_new_tokens = 9, .num_choices = 2});
  scheduler.run();
  const ScheduledStep fork = scheduler.next();
  EXPECT_THAT(rows_of(fork), ElementsAre(generated_rows(1, 65), prompt_rows(1, 64, 1, 1)));
  EXPECT_THAT(fork.copy_to, IsEmpty());
}

TEST(Sharing, AFullLastBlockIsCopiedToo) {
  Harness scheduler(16);
  scheduler.add({.id = 1, .prompt_ids = iota(64), .max_new_tokens = 9, .num_choices = 2});
  scheduler.run();
  const ScheduledStep fork = scheduler.next();
  EXPECT_THAT(rows_of(fork), ElementsAre(generated_rows(1, 64), prompt_rows(1, 63, 1, 1)));
  EXPECT_THAT(fork.copy_to, ElementsAre(fork.spans[1].block_table[1]));
  scheduler.complete(fork);  // the copy, full now, gives way to the one that is indexed
  EXPECT_EQ(scheduler->stats().num_blocks_used, 3);
}

TEST(Sharing, ChoicesDoNotQueueUpWhenTheFirstIsGone) {
  Harness scheduler(16);
  scheduler.add({.id = 1, .prompt_ids = iota(75), .max_new_tokens = 1, .num_choices = 3});
  EXPECT_THAT(scheduler.run(), ElementsAre(prompt_rows(1, 0, 75)));
  EXPECT_THAT(scheduler.run(), ElementsAre(prompt_rows(1, 64, 11, 1), prompt_rows(1, 64, 11, 2)));
  EXPECT_TRUE(scheduler->idle());
}

TEST(Sharing, CachedTokensAreThoseOfTheFirstChoice) {
  Harness scheduler(16);
  scheduler.add({.id = 1, .prompt_ids = iota(75)});
  scheduler.run_all();
  scheduler.add({.id = 2, .prompt_ids = iota(75), .max_new_tokens = 3, .num_choices = 3});
  scheduler.run_all();
  EXPECT_EQ(scheduler->take_ended()[1].num_cached_tokens, 64);
}

}  // namespace
}  // namespace kipp
