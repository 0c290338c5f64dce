// Cases, sizes and sums of `kipp bench`.
#include "cli/bench_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace kipp::cli {
namespace {

using testing::ElementsAre;

TEST(BenchPlan, EveryDepthWithEveryBatchAfterThePrompts) {
  BenchPlan plan;
  plan.prefill = {512, 2048};
  plan.depths = {16, 2048};
  plan.batches = {1, 8};
  std::vector<std::string> names;
  for (const BenchCase& one : plan.cases()) {
    names.push_back(one.name());
  }
  EXPECT_THAT(names, ElementsAre("prefill 512", "prefill 2048", "decode at 16, batch 1", "decode at 16, batch 8",
                                 "decode at 2048, batch 1", "decode at 2048, batch 8"));
}

TEST(BenchPlan, ZeroTurnsAPartOff) {
  BenchPlan plan;
  plan.prefill = {0};
  ASSERT_EQ(plan.cases().size(), 1U);
  EXPECT_TRUE(plan.cases()[0].decode);
  plan.decode = 0;
  EXPECT_TRUE(plan.cases().empty());
}

TEST(BenchPlan, RoomForTheLargestCase) {
  const BenchCase prompt{.decode = false, .tokens = 512};
  const BenchCase wide{.decode = true, .tokens = 64, .depth = 16, .batch = 8};
  const BenchCase deep{.decode = true, .tokens = 64, .depth = 2048, .batch = 1};
  EXPECT_EQ(needed_context(std::vector{prompt, wide, deep}), 2112);
  EXPECT_EQ(needed_blocks(std::vector{prompt, wide, deep}), 66);  // 2112 / 32
  EXPECT_EQ(needed_blocks(std::vector{prompt, wide}), 24);        // 8 sequences of 80 positions, three blocks each
  EXPECT_EQ(needed_context(std::vector{BenchCase{.tokens = 4}}), kStartTokens);
  EXPECT_EQ(wide.num_tokens(), 512);
}

// Three steps after 16 tokens attend to 17, 18 and 19 positions.
TEST(BenchPlan, MeanContext) {
  EXPECT_EQ((BenchCase{.decode = true, .tokens = 3, .depth = 16}.mean_context()), 18.0);
  EXPECT_EQ((BenchCase{.decode = true, .tokens = 1, .depth = 0}.mean_context()), 1.0);
}

TEST(BenchPlan, TokensAreDrawnFromTheSeed) {
  const auto ids = synthetic_tokens(7, 0, 1000, 50);
  EXPECT_EQ(ids, synthetic_tokens(7, 0, 1000, 50));
  EXPECT_NE(ids, synthetic_tokens(8, 0, 1000, 50));
  EXPECT_NE(ids, synthetic_tokens(7, 1, 1000, 50));
  EXPECT_EQ(*std::ranges::min_element(ids), 0);
  EXPECT_EQ(*std::ranges::max_element(ids), 49);
}

TEST(Spread, MedianOfOddAndEvenNumbers) {
  const Spread odd{{3, 1, 2}};
  EXPECT_EQ(odd.median(), 2);
  EXPECT_EQ(odd.min(), 1);
  EXPECT_EQ(odd.max(), 3);
  EXPECT_EQ((Spread{{4, 1, 2, 3}}.median()), 2.5);
}

TEST(Shares, OfTheLargerLimitAround) {
  const std::vector<double> values = {10, 10, 10};
  const std::vector<double> limits = {20, 40, 10, 0};
  EXPECT_THAT(shares(values, limits).values, ElementsAre(0.25, 0.25, 1.0));
  EXPECT_THAT(shares(std::vector{1.0}, std::vector{0.0, 0.0}).values, ElementsAre(0.0));
}

}  // namespace
}  // namespace kipp::cli
