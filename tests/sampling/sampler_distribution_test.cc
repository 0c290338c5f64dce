// Do draws follow the distribution that the parameters describe? Chi-square with fixed seeds, so never flaky.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "sampling/sampler.h"

namespace kipp {
namespace {

constexpr int32_t kTokens = 64;
constexpr int32_t kDraws = 100'000;

std::vector<float> sloping_logits() {
  std::vector<float> logits(kTokens);
  for (size_t id = 0; id < logits.size(); ++id) {
    logits[id] = static_cast<float>((id * 37) % kTokens) * 0.05F - 1.0F;
  }
  return logits;
}

std::vector<double> softmax(const std::vector<float>& logits, double temperature) {
  std::vector<double> shares(logits.size());
  for (size_t id = 0; id < logits.size(); ++id) {
    shares[id] = std::exp(static_cast<double>(logits[id]) / temperature);
  }
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) {
    share /= sum;
  }
  return shares;
}

// (chi² - degrees of freedom) / its standard deviation, over ids with a share; an id without one must never occur.
double deviations_from(const std::vector<double>& shares, const std::vector<int64_t>& counts) {
  const auto draws = static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
  double chi_square = 0.0;
  double degrees = -1.0;
  for (size_t id = 0; id < shares.size(); ++id) {
    if (shares[id] == 0.0) {
      EXPECT_EQ(counts[id], 0) << id;
      continue;
    }
    const double expected = shares[id] * draws;
    chi_square +=
        (static_cast<double>(counts[id]) - expected) * (static_cast<double>(counts[id]) - expected) / expected;
    degrees += 1.0;
  }
  return (chi_square - degrees) / std::sqrt(2.0 * degrees);
}

enum class Vary { kPosition, kSeed, kChoice };

std::vector<int64_t> count_draws(const SamplingParams& params, Vary vary) {
  const std::vector<float> logits = sloping_logits();
  std::vector<int64_t> counts(kTokens);
  SampleRequest request;
  request.params = &params;
  for (int32_t i = 0; i < kDraws; ++i) {
    request.position = vary == Vary::kPosition ? i : 5;
    request.seed = vary == Vary::kSeed ? static_cast<uint64_t>(i) : 2026;
    request.choice = vary == Vary::kChoice ? i : 0;
    ++counts[static_cast<size_t>(sample_token(logits, request, kTokens)->id)];
  }
  return counts;
}

TEST(Distribution, IsTheSoftmaxWhicheverPartOfTheKeyVaries) {
  const std::vector<double> shares = softmax(sloping_logits(), 1.0);
  for (const Vary vary : {Vary::kPosition, Vary::kSeed, Vary::kChoice}) {
    EXPECT_LT(std::abs(deviations_from(shares, count_draws({}, vary))), 4.0);
  }
}

TEST(Distribution, FollowsTheTemperature) {
  for (const float temperature : {0.5F, 2.0F}) {
    SamplingParams params;
    params.temperature = temperature;
    const std::vector<int64_t> counts = count_draws(params, Vary::kPosition);
    EXPECT_LT(std::abs(deviations_from(softmax(sloping_logits(), static_cast<double>(temperature)), counts)), 4.0);
    EXPECT_GT(deviations_from(softmax(sloping_logits(), 1.0), counts), 100.0);  // the test can tell them apart
  }
}

TEST(Distribution, IsRenormalisedOverWhatTopKKeeps) {
  SamplingParams params;
  params.top_k = 10;
  std::vector<double> shares = softmax(sloping_logits(), 1.0);
  std::vector<double> sorted = shares;
  std::sort(sorted.rbegin(), sorted.rend());
  const double kept = std::accumulate(sorted.begin(), sorted.begin() + 10, 0.0);
  for (double& share : shares) {
    share = share >= sorted[9] ? share / kept : 0.0;
  }
  EXPECT_LT(std::abs(deviations_from(shares, count_draws(params, Vary::kPosition))), 4.0);
}

TEST(Distribution, NeighbouringPositionsAreIndependent) {
  const std::vector<float> logits(4, 0.0F);
  const SamplingParams params;
  SampleRequest request;
  request.params = &params;
  std::vector<int64_t> pairs(16);
  int32_t previous = 0;
  for (int32_t position = 0; position < kDraws; ++position) {
    request.position = position;
    const int32_t id = sample_token(logits, request, 4)->id;
    if (position > 0) {
      ++pairs[static_cast<size_t>(previous * 4 + id)];
    }
    previous = id;
  }
  EXPECT_LT(std::abs(deviations_from(std::vector<double>(16, 1.0 / 16.0), pairs)), 4.0);
}

}  // namespace
}  // namespace kipp
