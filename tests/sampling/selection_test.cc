// The radix descent against a plain sort, with many ties.
#include "sampling/selection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace kipp {
namespace {

using ::testing::ElementsAre;

std::vector<Candidate> random_candidates(uint32_t seed, int32_t count, float step) {
  std::mt19937 random(seed);
  std::normal_distribution<float> logits(0.0F, 3.0F);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) {
    value = std::round(logits(random) / step) * step;
  }
  const float best = *std::max_element(values.begin(), values.end());
  std::vector<Candidate> candidates;
  for (int32_t id = 0; id < count; ++id) {
    const float value = values[static_cast<size_t>(id)];
    candidates.push_back({weight_of(best - value, kUnitTemperature), order_key(value), id});
  }
  return candidates;
}

std::vector<int32_t> ids_of(const std::vector<Candidate>& candidates) {
  std::vector<int32_t> ids;
  for (const Candidate& candidate : candidates) {
    ids.push_back(candidate.id);
  }
  return ids;
}

// The definition: best first, ties by ascending id; kept until the mass before a candidate reaches `need`.
template <typename Mass>
std::vector<int32_t> kept_by_sorting(std::vector<Candidate> candidates, uint64_t need, Mass mass) {
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.key != b.key ? a.key > b.key : a.id < b.id; });
  std::vector<int32_t> ids;
  uint64_t before = 0;
  for (const Candidate& candidate : candidates) {
    if (before >= need) {
      break;
    }
    before += mass(candidate);
    ids.push_back(candidate.id);
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

class Selection : public ::testing::TestWithParam<float> {};

TEST_P(Selection, CutsByCountAsASortDoes) {
  const std::vector<Candidate> candidates = random_candidates(1, 3'000, GetParam());
  std::vector<uint32_t> keys;
  for (const Candidate& candidate : candidates) {
    keys.push_back(candidate.key);
  }
  for (const uint64_t count : {1ULL, 2ULL, 3ULL, 20ULL, 999ULL, 2'999ULL, 3'000ULL}) {
    std::vector<Candidate> kept = candidates;
    apply_cut(cut_by_count(keys, count), kept);
    EXPECT_EQ(kept.size(), count);
    EXPECT_EQ(ids_of(kept), kept_by_sorting(candidates, count, [](const Candidate&) { return 1ULL; }));
  }
}

TEST_P(Selection, CutsByWeightAsASortDoes) {
  const std::vector<Candidate> candidates = random_candidates(2, 3'000, GetParam());
  const uint64_t sum = sum_of_weights(candidates);
  for (const uint64_t need :
       {uint64_t{1}, kMaxWeight, kMaxWeight + 1, sum / 10, sum / 2, sum - sum / 20, sum - 1, sum}) {
    std::vector<Candidate> kept = candidates;
    apply_cut(cut_by_weight(candidates, need), kept);
    EXPECT_EQ(ids_of(kept), kept_by_sorting(candidates, need, [](const Candidate& c) { return c.weight; })) << need;
  }
}

INSTANTIATE_TEST_SUITE_P(StepsBetweenLogits, Selection, ::testing::Values(1e-6F, 0.25F, 2.0F, 100.0F));

TEST(CutByCount, NeverKeepsAnExcludedKey) {
  const std::vector<uint32_t> keys = {0, order_key(-5.0F), 0, order_key(-kMaxFinite), 0};
  const Cut cut = cut_by_count(keys, 2);
  EXPECT_EQ(cut.key, order_key(-kMaxFinite));
  EXPECT_EQ(cut.num_ties, 1U);
}

TEST(CandidateAt, LaysWeightsEndToEnd) {
  const std::vector<Candidate> candidates = {{3, 1, 10}, {0, 1, 11}, {2, 1, 12}};
  std::vector<int32_t> ids;
  for (uint64_t point = 0; point < 5; ++point) {
    ids.push_back(candidate_at(candidates, point));
  }
  EXPECT_THAT(ids, ElementsAre(10, 10, 10, 12, 12));
}

}  // namespace
}  // namespace kipp
