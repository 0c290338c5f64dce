// From add() to take_ended(): ends of every kind, steps in flight, times and counts.
#include "scheduler/harness.h"

namespace kipp {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

TEST(LifeCycle, TheCallerStopsASequence) {
  Harness scheduler(4);
  scheduler.add({.id = 1, .prompt_ids = iota(5), .max_new_tokens = 99});
  scheduler.run();
  ASSERT_TRUE(scheduler->finish({1, 0}, EndReason::kStop));
  EXPECT_TRUE(scheduler->idle());
  EXPECT_EQ(scheduler->stats().num_blocks_used, 0);
  EXPECT_EQ(scheduler->finish({1, 0}, EndReason::kStop).error().code, ErrorCode::kNotFound);
  const auto ended = scheduler->take_ended();
  ASSERT_THAT(ended, SizeIs(1));
  EXPECT_THAT(ended[0].num_new_tokens, ElementsAre(1));
  EXPECT_THAT(ended[0].reasons, ElementsAre(EndReason::kStop));
  EXPECT_THAT(scheduler->take_ended(), IsEmpty());
  EXPECT_EQ(scheduler->info(1), std::nullopt);
  scheduler.add({.id = 1, .prompt_ids = iota(5)});  // the id is free again
}

TEST(LifeCycle, UnknownSequencesAreErrors) {
  Harness scheduler(4);
  scheduler.add({.id = 1, .prompt_ids = iota(5), .max_new_tokens = 9, .num_choices = 2});
  EXPECT_THAT(scheduler->finish({1, 2}, EndReason::kStop).error().message, HasSubstr("request 1, choice 2"));
  EXPECT_FALSE(scheduler->finish({1, -1}, EndReason::kStop));
  EXPECT_FALSE(scheduler->finish({2, 0}, EndReason::kStop));
  EXPECT_FALSE(scheduler->cancel(2));
  EXPECT_THAT(scheduler->tokens({1, 1}), SizeIs(5));
  EXPECT_THAT(scheduler->tokens({2, 0}), IsEmpty());
}

TEST(LifeCycle, OneChoiceEndsAndTheOthersGoOn) {
  Harness scheduler(8);
  scheduler.add({.id = 1, .prompt_ids = iota(5), .max_new_tokens = 9, .num_choices = 2});
  scheduler.run();
  scheduler.run();
  ASSERT_TRUE(scheduler->finish({1, 0}, EndReason::kStop));
  EXPECT_THAT(scheduler.run(), ElementsAre(generated_rows(1, 5, 1, 1)));
  EXPECT_THAT(scheduler->take_ended(), IsEmpty());
  ASSERT_TRUE(scheduler->cancel(1));
  EXPECT_THAT(scheduler->take_ended()[0].reasons, ElementsAre(EndReason::kStop, EndReason::kCancelled));
}

TEST(LifeCycle, WhoeverWaitsCanBeCancelled) {
  Harness scheduler(8, {.max_sequences = 1});
  scheduler.add({.id = 1, .prompt_ids = iota(5)});
  scheduler.add({.id = 2, .prompt_ids = iota(5)});
  ASSERT_TRUE(scheduler->cancel(2));
  EXPECT_THAT(scheduler.run_all(), ElementsAre(prompt_rows(1, 0, 5)));
}

TEST(LifeCycle, CancelledInFlightItsBlocksAreFreeOnceTheStepIsCollected) {
  Harness scheduler(2, {.look_ahead = true});
  scheduler.add({.id = 1, .prompt_ids = iota(40), .max_new_tokens = 9});
  const ScheduledStep prompt = scheduler.next();
  const ScheduledStep decode = scheduler.next();
  ASSERT_TRUE(scheduler->cancel(1));
  EXPECT_EQ(scheduler->stats().num_blocks_used, 2);
  EXPECT_THAT(scheduler->take_ended(), IsEmpty());  // steps still name it
  scheduler.add({.id = 2, .prompt_ids = iota(40, 100), .max_new_tokens = 9});
  EXPECT_EQ(scheduler->next_step(), std::nullopt);
  EXPECT_THAT(scheduler.complete(prompt), IsEmpty());
  EXPECT_EQ(scheduler->stats().num_blocks_used, 2);
  EXPECT_EQ(scheduler->next_step(), std::nullopt);
  EXPECT_THAT(scheduler.complete(decode), IsEmpty());
  EXPECT_EQ(scheduler->stats().num_blocks_used, 0);
  EXPECT_EQ(scheduler->stats().num_dropped_tokens, 2U);
  EXPECT_THAT(scheduler->take_ended(), SizeIs(1));
  EXPECT_THAT(scheduler.run(), ElementsAre(prompt_rows(2, 0, 40)));
}

TEST(LifeCycle, WithoutLookAheadAStepWaitsForTheOneBefore) {
  Harness scheduler(4);
  scheduler.add({.id = 1, .prompt_ids = iota(5), .max_new_tokens = 9});
  const ScheduledStep step = scheduler.next();
  EXPECT_EQ(scheduler->next_step(), std::nullopt);
  scheduler.complete(step);
  EXPECT_NE(scheduler->next_step(), std::nullopt);
}

TEST(LookAhead, ATokenIsTakenFromTheRowThatDrawsIt) {
  Harness scheduler(8, {.look_ahead = true});
  scheduler.add({.id = 1, .prompt_ids = iota(5), .max_new_tokens = 9});
  scheduler.add({.id = 2, .prompt_ids = iota(5, 10), .max_new_tokens = 9});
  const ScheduledStep first = scheduler.next();
  const ScheduledStep second = scheduler.next();
  EXPECT_THAT(rows_of(second), ElementsAre(generated_rows(1, 5), generated_rows(2, 5)));
  EXPECT_EQ(second.tokens[0].from_row, 0);
  EXPECT_EQ(second.tokens[1].from_row, 1);
  EXPECT_EQ(scheduler->next_step(), std::nullopt);  // two are in flight
  scheduler.complete(first, {77, 88});
  ASSERT_TRUE(scheduler->finish({1, 0}, EndReason::kStop));  // 77 was the last: its row of the second step is dropped
  const ScheduledStep third = scheduler.next();
  EXPECT_THAT(rows_of(third), ElementsAre(generated_rows(2, 6)));
  EXPECT_EQ(third.tokens[0].from_row, 1);
  const auto tokens = scheduler.complete(second, {1, 89});
  ASSERT_THAT(tokens, SizeIs(1));
  EXPECT_EQ(tokens[0].sequence, (SequenceId{2, 0}));
  EXPECT_EQ(tokens[0].row, 1);
  EXPECT_THAT(scheduler->take_ended()[0].num_new_tokens, ElementsAre(1));
  scheduler.complete(third, {90});
  EXPECT_THAT(scheduler->tokens({2, 0}).last(3), ElementsAre(88, 89, 90));
}

TEST(LookAhead, ALengthIsKnownAheadAndNothingIsComputedBeyondIt) {
  Harness scheduler(8, {.look_ahead = true});
  scheduler.add({.id = 1, .prompt_ids = iota(5), .max_new_tokens = 2});
  const ScheduledStep first = scheduler.next();
  const ScheduledStep second = scheduler.next();
  scheduler.complete(first);
  EXPECT_EQ(scheduler->next_step(), std::nullopt);
  EXPECT_EQ(scheduler.complete(second)[0].ended, EndReason::kLength);
  EXPECT_EQ(scheduler->stats().num_dropped_tokens, 0U);
}

TEST(LookAhead, AForkWaitsUntilItsLeadersRowsAreCollected) {
  Harness scheduler(8, {.look_ahead = true});
  scheduler.add({.id = 1, .prompt_ids = iota(40), .max_new_tokens = 9, .num_choices = 2});
  const ScheduledStep first = scheduler.next();
  const ScheduledStep second = scheduler.next();
  EXPECT_THAT(rows_of(second), ElementsAre(generated_rows(1, 40)));
  scheduler.complete(first);
  const ScheduledStep third = scheduler.next();
  EXPECT_THAT(rows_of(third), ElementsAre(generated_rows(1, 41), prompt_rows(1, 39, 1, 1)));
  EXPECT_THAT(third.copy_to, SizeIs(1));
}

TEST(Complete, TakesTheOldestStepWithAnIdForEveryHeadRow) {
  Harness scheduler(8, {.look_ahead = true});
  scheduler.add({.id = 1, .prompt_ids = iota(5), .max_new_tokens = 9});
  EXPECT_THAT(scheduler->complete(1, {}).error().message, HasSubstr("none"));
  const ScheduledStep first = scheduler.next();
  const ScheduledStep second = scheduler.next();
  const std::vector<int32_t> ids = {5};
  EXPECT_THAT(scheduler->complete(second.id, ids).error().message, HasSubstr("the oldest in flight is 1"));
  EXPECT_THAT(scheduler->complete(first.id, {}).error().message, HasSubstr("expected 1 sampled ids, found 0"));
  EXPECT_TRUE(scheduler->complete(first.id, ids));
}

TEST(Complete, LogitsThatAreNotFiniteEndTheirSequenceAlone) {
  Harness scheduler(8);
  scheduler.add({.id = 1, .prompt_ids = iota(5), .max_new_tokens = 9});
  scheduler.add({.id = 2, .prompt_ids = iota(5, 10), .max_new_tokens = 9});
  const auto tokens = scheduler.complete(scheduler.next(), {-1, 6});
  ASSERT_THAT(tokens, SizeIs(2));
  EXPECT_EQ(tokens[0].ended, EndReason::kFailed);
  EXPECT_EQ(tokens[1].ended, std::nullopt);
  EXPECT_THAT(scheduler->take_ended()[0].num_new_tokens, ElementsAre(0));
  EXPECT_THAT(scheduler.run(), ElementsAre(generated_rows(2, 5)));
}

TEST(Fail, AStepThatFailsEndsItsSequencesAndNoOthers) {
  Harness scheduler(8, {.max_tokens_per_step = 5, .look_ahead = true});
  scheduler.add({.id = 1, .prompt_ids = iota(5), .max_new_tokens = 9});
  scheduler.add({.id = 2, .prompt_ids = iota(20, 10), .max_new_tokens = 9});
  const ScheduledStep first = scheduler.next();
  const ScheduledStep second = scheduler.next();
  EXPECT_THAT(rows_of(second), ElementsAre(generated_rows(1, 5), prompt_rows(2, 0, 4)));
  scheduler.add({.id = 3, .prompt_ids = iota(5, 50), .max_new_tokens = 9});
  ASSERT_TRUE(scheduler->fail(second.id));
  EXPECT_FALSE(scheduler->fail(second.id));
  EXPECT_EQ(scheduler->next_step(), std::nullopt);  // whose rows its tokens would be drawn from is not known
  EXPECT_THAT(scheduler.complete(first), IsEmpty());
  EXPECT_THAT(scheduler->take_ended(), SizeIs(2));
  EXPECT_THAT(scheduler.run(), ElementsAre(prompt_rows(3, 0, 5)));
  EXPECT_EQ(scheduler->stats().num_ended[static_cast<size_t>(EndReason::kFailed)], 2U);
}

TEST(Statistics, TimesComeFromTheInjectedClock) {
  Harness scheduler(8, {.max_tokens_per_step = 8});
  scheduler.set_time(10);
  scheduler.add({.id = 1, .prompt_ids = iota(8), .max_new_tokens = 2});
  scheduler.add({.id = 2, .prompt_ids = iota(8, 20), .max_new_tokens = 2});
  scheduler.set_time(20);
  const ScheduledStep step = scheduler.next();
  EXPECT_EQ(scheduler->info(2)->times.first_scheduled, std::nullopt);
  scheduler.set_time(30);
  scheduler.complete(step);
  scheduler.set_time(40);
  scheduler.run();
  const RequestTimes times = scheduler->take_ended()[0].times;
  EXPECT_EQ(times.queued, SchedulerTime(milliseconds(10)));
  EXPECT_EQ(times.first_scheduled, SchedulerTime(milliseconds(20)));
  EXPECT_EQ(times.first_token, SchedulerTime(milliseconds(30)));
  EXPECT_EQ(times.ended, SchedulerTime(milliseconds(40)));
  EXPECT_EQ(scheduler->info(2)->times.first_scheduled, SchedulerTime(milliseconds(40)));
}

TEST(Statistics, QueueAndPoolAreCounted) {
  Harness scheduler(8, {.max_sequences = 2});
  for (uint64_t id = 1; id <= 3; ++id) {
    scheduler.add({.id = id, .prompt_ids = iota(40, static_cast<int32_t>(id) * 100), .max_new_tokens = 2});
  }
  EXPECT_EQ(scheduler->stats().num_waiting, 3);
  scheduler.run();
  SchedulerStats stats = scheduler->stats();
  EXPECT_EQ(stats.num_waiting, 1);
  EXPECT_EQ(stats.num_running, 2);
  EXPECT_EQ(stats.num_blocks_used, 4);
  EXPECT_EQ(stats.num_blocks_cached, 0);
  EXPECT_EQ(stats.num_blocks_free, 4);
  EXPECT_EQ(stats.num_scheduled_tokens, 80U);
  scheduler.run_all();
  stats = scheduler->stats();
  EXPECT_EQ(stats.num_blocks_used, 0);
  EXPECT_EQ(stats.num_blocks_cached, 3);
  EXPECT_EQ(stats.num_ended[static_cast<size_t>(EndReason::kLength)], 3U);
  EXPECT_EQ(stats.num_steps, 4U);
}

}  // namespace
}  // namespace kipp
