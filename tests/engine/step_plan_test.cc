// Plans cover every run in order and never exceed a limit.
#include "engine/step_plan.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace kipp {
namespace {

Limits limits_of(int32_t tokens, int32_t sequences, int32_t head_rows) {
  return {.max_tokens_per_step = tokens, .max_sequences = sequences, .max_head_rows = head_rows};
}

TEST(StepPlanTest, OneSmallRunIsOneStep) {
  const std::vector<int32_t> head_rows = {4};
  const std::vector<TokenRun> runs = {{5, head_rows}};
  const auto steps = plan_steps(runs, limits_of(8, 2, 2));
  ASSERT_EQ(steps.size(), 1U);
  ASSERT_EQ(steps[0].size(), 1U);
  EXPECT_EQ(steps[0][0].count, 5U);
  EXPECT_EQ(steps[0][0].head_count, 1U);
}

TEST(StepPlanTest, RunsThatFitShareAStep) {
  const std::vector<int32_t> head_rows = {0};
  const std::vector<TokenRun> runs = {{1, head_rows}, {1, head_rows}, {1, head_rows}};
  EXPECT_EQ(plan_steps(runs, limits_of(512, 64, 64)).size(), 1U);
  EXPECT_EQ(plan_steps(runs, limits_of(512, 2, 64)).size(), 2U);
  EXPECT_EQ(plan_steps(runs, limits_of(512, 64, 1)).size(), 3U);
}

void check_plan(std::span<const TokenRun> runs, const Limits& limits) {
  std::vector<PlannedSpan> last(runs.size(), {0, 0, 0, 0, 0});
  for (const auto& step : plan_steps(runs, limits)) {
    ASSERT_FALSE(step.empty());
    std::set<size_t> seen;
    size_t tokens = 0;
    size_t head_rows = 0;
    for (const PlannedSpan& span : step) {
      PlannedSpan& previous = last[span.run];
      ASSERT_TRUE(seen.insert(span.run).second) << "a run twice in one step";
      ASSERT_GE(span.count, 1U);
      ASSERT_EQ(span.begin, previous.begin + previous.count);
      ASSERT_EQ(span.head_begin, previous.head_begin + previous.head_count);
      for (size_t h = 0; h < span.head_count; ++h) {
        const auto row = static_cast<size_t>(runs[span.run].head_rows[span.head_begin + h]);
        ASSERT_TRUE(row >= span.begin && row < span.begin + span.count);
      }
      tokens += span.count;
      head_rows += span.head_count;
      previous = span;
    }
    ASSERT_LE(tokens, static_cast<size_t>(limits.max_tokens_per_step));
    ASSERT_LE(head_rows, static_cast<size_t>(limits.max_head_rows));
    ASSERT_LE(step.size(), static_cast<size_t>(limits.max_sequences));
  }
  for (size_t r = 0; r < runs.size(); ++r) {
    ASSERT_EQ(last[r].begin + last[r].count, runs[r].num_tokens);
    ASSERT_EQ(last[r].head_begin + last[r].head_count, runs[r].head_rows.size());
  }
}

TEST(StepPlanTest, RandomRunsAreCoveredInOrderWithinTheLimits) {
  std::mt19937_64 random(1);
  const auto draw = [&](int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(random);
  };
  for (int32_t trial = 0; trial < 3000; ++trial) {
    const Limits limits = limits_of(draw(1, 40), draw(1, 6), draw(1, 10));
    std::vector<std::vector<int32_t>> head_rows(static_cast<size_t>(draw(0, 8)));
    std::vector<TokenRun> runs;
    for (auto& rows : head_rows) {
      const int32_t num_tokens = draw(1, 90);
      const int32_t density = draw(0, 4);  // none, some or all rows
      for (int32_t row = 0; row < num_tokens; ++row) {
        if (draw(0, 3) < density) {
          rows.push_back(row);
        }
      }
      runs.push_back({static_cast<size_t>(num_tokens), rows});
    }
    check_plan(runs, limits);
    ASSERT_FALSE(testing::Test::HasFatalFailure()) << "trial " << trial;
  }
}

}  // namespace
}  // namespace kipp
