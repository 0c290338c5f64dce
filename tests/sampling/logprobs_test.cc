// The log-softmax against long double, its stability, and the order of the best ids.
#include "sampling/logprobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace kipp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

std::vector<float> random_logits(uint32_t seed, size_t count, float deviation) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, deviation);
  std::vector<float> logits(count);
  std::generate(logits.begin(), logits.end(), [&] { return normal(random); });
  return logits;
}

// Three roundings of floats no larger than the result, and 151,669 weights rounded at 2^-45 each against a sum >= 2^0.
TEST(LogSoftmax, AgreesWithLongDouble) {
  for (const float deviation : {0.0F, 0.01F, 1.0F, 3.0F, 10.0F, 40.0F}) {
    const std::vector<float> logits = random_logits(17, 151'936, deviation);
    constexpr int32_t kTokens = 151'669;
    const long double best = *std::max_element(logits.begin(), logits.begin() + kTokens);
    long double sum = 0.0L;
    for (int32_t id = 0; id < kTokens; ++id) {
      sum += std::exp(static_cast<long double>(logits[static_cast<size_t>(id)]) - best);
    }
    const LogSoftmax softmax = log_softmax(logits, kTokens);
    for (size_t id = 0; id < kTokens; id += 997) {
      const auto exact = static_cast<double>(static_cast<long double>(logits[id]) - best - std::log(sum));
      ASSERT_NEAR(static_cast<double>(softmax(logits[id])), exact, 2e-8 + std::abs(exact) * 1.5 * 0x1p-23) << deviation;
    }
  }
}

TEST(LogSoftmax, IsStableForLargeLogits) {
  const std::vector<float> logits = {3e38F, 3e38F, -3e38F};
  const LogSoftmax softmax = log_softmax(logits, 3);
  EXPECT_FLOAT_EQ(softmax(3e38F), -std::log(2.0F));
  EXPECT_LT(softmax(-3e38F), -1e38F);
}

TEST(LogSoftmax, OfACertainTokenIsZero) {
  const std::vector<float> logits = {100.0F, 0.0F};
  const float value = log_softmax(logits, 2)(100.0F);
  EXPECT_EQ(value, 0.0F);
  EXPECT_FALSE(std::signbit(value));
}

TEST(LogSoftmax, LeavesOutPaddingRows) {
  const std::vector<float> logits = {1.0F, 1.0F, 50.0F, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_FLOAT_EQ(log_softmax(logits, 2)(1.0F), -std::log(2.0F));
}

TEST(LogSoftmax, DoesNotDependOnTheOrderOfIds) {
  std::vector<float> logits = random_logits(23, 5'000, 4.0F);
  const LogSoftmax first = log_softmax(logits, 5'000);
  std::shuffle(logits.begin(), logits.end(), std::mt19937(9));
  const LogSoftmax second = log_softmax(logits, 5'000);
  EXPECT_EQ(first.best, second.best);
  EXPECT_EQ(first.log_sum, second.log_sum);
}

TEST(BestLogprobs, DescendWithTiesByAscendingId) {
  const std::vector<float> logits = {1.0F, 3.0F, -2.0F, 3.0F, 1.0F, 9.0F};
  const LogSoftmax softmax = log_softmax(logits, 5);
  EXPECT_THAT(best_logprobs(logits, 5, 3, softmax),
              ElementsAre(Pair(1, softmax(3.0F)), Pair(3, softmax(3.0F)), Pair(0, softmax(1.0F))));
  EXPECT_EQ(best_logprobs(logits, 5, 20, softmax).size(), 5U);
  EXPECT_TRUE(best_logprobs(logits, 5, 0, softmax).empty());
}

TEST(BestLogprobs, AgreeWithASort) {
  const std::vector<float> logits = random_logits(31, 20'000, 2.0F);
  std::vector<int32_t> ids(logits.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<int32_t>(i);
  }
  std::sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
    const float logit_a = logits[static_cast<size_t>(a)];
    const float logit_b = logits[static_cast<size_t>(b)];
    return logit_a != logit_b ? logit_a > logit_b : a < b;
  });
  const auto best = best_logprobs(logits, 20'000, 20, log_softmax(logits, 20'000));
  ASSERT_EQ(best.size(), 20U);
  for (size_t i = 0; i < best.size(); ++i) {
    EXPECT_EQ(best[i].first, ids[i]);
  }
}

TEST(CheckFinite, NamesTheFirstBadId) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    const std::vector<float> logits = {0.0F, 1.0F, bad, bad};
    EXPECT_TRUE(check_finite(logits, 2).has_value());
    const auto result = check_finite(logits, 3);
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code, ErrorCode::kNumerical);
    EXPECT_THAT(result.error().message, HasSubstr("id 2"));
  }
}

}  // namespace
}  // namespace kipp
