// The near-tie rule on a head small enough to work out by hand.
#include "gates/near_tie.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "base/bf16.h"
#include "gates/metrics.h"

namespace kipp::gates {
namespace {

std::vector<std::byte> bf16_bytes(const std::vector<float>& values) {
  std::vector<std::byte> bytes;
  for (const float value : values) {
    const uint16_t bits = f32_to_bf16(value);
    const auto* begin = reinterpret_cast<const std::byte*>(&bits);
    bytes.insert(bytes.end(), begin, begin + sizeof bits);
  }
  return bytes;
}

TEST(NearTieRule, IsFourDeviationsWithoutAHead) {
  EXPECT_DOUBLE_EQ(NearTieRule().allowance(3, 5, 0.25), 1.0);
}

TEST(NearTieRule, IsTheSameForOrthogonalRowsOfEqualNorm) {
  const auto head = bf16_bytes({2, 0, 0, 0, 2, 0, 0, 0, 2});
  EXPECT_DOUBLE_EQ(NearTieRule(head, 3).allowance(0, 2, 0.25), 1.0);
}

// Norms 4, 4, 1, 1: the mean square is 8.5. Two heavy rows are 4√2 apart, two light ones √2.
TEST(NearTieRule, ScalesWithTheRowsOfTheTwoCandidates) {
  const auto head = bf16_bytes({4, 0, 0, 0, 0, 4, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1});
  const NearTieRule rule(head, 4);
  EXPECT_NEAR(rule.scale(0, 1), 4.0 / std::sqrt(8.5), 1e-12);
  EXPECT_NEAR(rule.scale(2, 3), 1.0 / std::sqrt(8.5), 1e-12);
  EXPECT_NEAR(rule.scale(0, 3), std::sqrt(17.0 / 2.0 / 8.5), 1e-12);
}

// Rows that point the same way deviate together: their order cannot be blamed on the deviation.
TEST(NearTieRule, AllowsNothingBetweenEqualRows) {
  const auto head = bf16_bytes({1, 2, 1, 2, 3, 1});
  EXPECT_EQ(NearTieRule(head, 2).allowance(0, 1, 0.5), 0.0);
}

// One logit far off, as from a broken row of the head: the deviation is spread over 10,000 ids and explains no gap.
TEST(NearTieRule, DoesNotExcuseOneBrokenLogit) {
  constexpr size_t kVocab = 10'000;
  std::vector<float> weights(kVocab * 2, 1.0F);
  weights[0] = 4.0F;
  weights[3] = -4.0F;
  const auto head = bf16_bytes(weights);
  std::vector<float> reference(kVocab, 1.0F);
  reference[0] = 3.0F;
  std::vector<float> found = reference;
  found[1] = 4.0F;
  const RowComparison row =
      compare_rows(std::span<const float>(found), std::span<const float>(reference), NearTieRule(head, 2));
  EXPECT_EQ(row.argmax, Argmax::kDifferent);
  EXPECT_EQ(row.flip.found_id, 1U);
  EXPECT_DOUBLE_EQ(row.flip.gap, 2.0);
  EXPECT_DOUBLE_EQ(row.flip.rms_deviation, 0.03);
}

}  // namespace
}  // namespace kipp::gates
