// NMSE, argmax and the near-tie rule on rows small enough to work out by hand.
#include "gates/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace kipp::gates {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

RowComparison compare(const std::vector<float>& found, const std::vector<float>& reference) {
  return compare_rows(std::span<const float>(found), std::span<const float>(reference), NearTieRule());
}

TEST(CompareRows, ComputesTheNmse) {
  const RowComparison row = compare({1.0F, 2.0F, 5.0F}, {1.0F, 2.0F, 4.0F});
  EXPECT_DOUBLE_EQ(row.squares.nmse(), 1.0 / 21.0);
  EXPECT_EQ(row.argmax, Argmax::kEqual);
  EXPECT_FALSE(row.bitwise);
}

TEST(CompareRows, EqualRowsAreBitwiseEqual) {
  const RowComparison row = compare({1.0F, 0.0F}, {1.0F, 0.0F});
  EXPECT_EQ(row.squares.nmse(), 0.0);
  EXPECT_TRUE(row.bitwise);
  EXPECT_FALSE(compare({1.0F, -0.0F}, {1.0F, 0.0F}).bitwise);
}

TEST(CompareRows, TellsNearTiesFromOtherArgmaxes) {
  // The reference's two best are 0.02 apart; its rms is about 7.1. An error of 0.02 in one: NMSE 2e-6, 4·√NMSE·rms =
  // 0.04.
  EXPECT_EQ(compare({10.0F, 10.01F, 0.0F, 1.0F}, {10.01F, 9.99F, 0.0F, 1.0F}).argmax, Argmax::kNearTie);
  // A row far off explains a wide gap: its NMSE fails then, and says more than its argmax.
  EXPECT_EQ(compare({10.0F, 30.0F, 0.0F, 1.0F}, {30.0F, -10.0F, 0.0F, 1.0F}).argmax, Argmax::kNearTie);
  std::vector<float> found(10'000, 1.0F);
  std::vector<float> reference(10'000, 1.0F);
  reference[0] = 3.0F;
  found[0] = 2.0F;
  found[1] = 2.5F;  // Σ error² = 3.25, Σ b² ≈ 10,008: 4·√(3.25/10,008)·1 = 0.07, but the gap is 2
  EXPECT_EQ(compare(found, reference).argmax, Argmax::kDifferent);
}

TEST(CompareRows, TheLowestIndexOfATieIsTheArgmax) {
  EXPECT_EQ(compare({2.0F, 2.0F}, {2.0F, 1.0F}).argmax, Argmax::kEqual);
}

TEST(Comparison, AggregatesAndNamesTheWorst) {
  Comparison comparison;
  comparison.add(4, compare({1.0F, 0.0F}, {1.0F, 0.0F}));
  comparison.add(5, compare({10.0F, 1.0F}, {10.0F, 0.0F}));
  comparison.add(6, compare({1.0F, 0.0F}, {1.0F, 0.05F}));
  EXPECT_EQ(comparison.num_rows, 3);
  EXPECT_EQ(comparison.num_bitwise, 1);
  EXPECT_EQ(comparison.worst_position, 5);
  EXPECT_DOUBLE_EQ(comparison.worst_nmse, 0.01);
  EXPECT_NEAR(comparison.nmse(), 1.0025 / 102.0025, 1e-9);
  Comparison total;
  total.add(comparison);
  total.add(comparison);
  EXPECT_EQ(total.num_rows, 6);
  EXPECT_DOUBLE_EQ(total.nmse(), comparison.nmse());
  EXPECT_DOUBLE_EQ(total.mean_nmse(), comparison.mean_nmse());
}

TEST(Comparison, ANanIsTheWorstAndStays) {
  Comparison comparison;
  comparison.add(0, compare({1.0F, std::numeric_limits<float>::quiet_NaN()}, {1.0F, 0.0F}));
  comparison.add(1, compare({5.0F, 1.0F}, {1.0F, 0.0F}));
  EXPECT_TRUE(std::isnan(comparison.worst_nmse));
  EXPECT_EQ(comparison.worst_position, 0);
  EXPECT_FALSE(violations(comparison, {.nmse = 1e9}).empty());
}

TEST(Violations, NameWhatIsOutOfBounds) {
  Comparison comparison;
  EXPECT_THAT(violations(comparison, {.nmse = 1.0}), ElementsAre(HasSubstr("nothing was compared")));
  comparison.add(7, compare({10.0F, 1.0F}, {10.0F, 0.0F}));
  EXPECT_THAT(violations(comparison, {.nmse = 0.02}), IsEmpty());
  EXPECT_THAT(violations(comparison, {.nmse = 0.001}), ElementsAre(HasSubstr("at position 7")));
  EXPECT_THAT(violations(comparison, {.nmse = 0.02, .worst_nmse = 0.001}), ElementsAre(HasSubstr("single row")));
}

TEST(Violations, CountArgmaxesAndNearTies) {
  Comparison comparison;
  for (int32_t i = 0; i < 20; ++i) {
    comparison.add(i,
                   RowComparison{{0.0, 1.0}, i == 3 ? Argmax::kNearTie : Argmax::kEqual, true, {7, 8, 0.5, 1.0, 0.25}});
  }
  EXPECT_THAT(violations(comparison, {.nmse = 0.0, .near_tie_share = kNearTieShareOfTwins}), IsEmpty());
  EXPECT_THAT(violations(comparison, {.nmse = 0.0}), ElementsAre(HasSubstr("1 near ties of 20")));
  comparison.add(20, RowComparison{{0.0, 1.0}, Argmax::kDifferent, false, {7, 9, 1.5, 1.0, 0.25}});
  EXPECT_THAT(violations(comparison, {.nmse = 0.0, .near_tie_share = 1.0}),
              ElementsAre(HasSubstr("first at 20: id 9 instead of 7")));
  EXPECT_EQ(to_json(comparison).find("argmax_flips")->items().size(), 2U);
}

// Records give the verdict of the rule without the head's rows beside the one that counts.
TEST(ToJson, GivesBothVerdictsOfASwap) {
  Comparison comparison;
  comparison.add(3, RowComparison{{0.0, 1.0}, Argmax::kNearTie, false, {7, 8, 1.5, 2.0, 0.25}});  // plainly below 1
  comparison.add(4, RowComparison{{0.0, 1.0}, Argmax::kDifferent, false, {7, 8, 0.75, 0.5, 0.25}});
  const Json json = to_json(comparison);
  const auto& flips = json.find("argmax_flips")->items();
  ASSERT_EQ(flips.size(), 2U);
  EXPECT_TRUE(flips[0].find("near_tie")->as_bool());
  EXPECT_FALSE(flips[0].find("near_tie_by_the_plain_rule")->as_bool());
  EXPECT_FALSE(flips[1].find("near_tie")->as_bool());
  EXPECT_TRUE(flips[1].find("near_tie_by_the_plain_rule")->as_bool());
}

}  // namespace
}  // namespace kipp::gates
