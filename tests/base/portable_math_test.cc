// exp_f32 against the C library's 80-bit expl, over all exponents, and its exact bits against a recorded digest.
#include "base/portable_math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace kipp {
namespace {

constexpr uint32_t kSign = 0x80000000U;
constexpr uint32_t kSmallest = 0x00000001U;  // the first subnormal
constexpr uint32_t kInfinity = 0x7F800000U;

// Calls visit(x) with every `step`-th positive float of the bit range and its negative.
template <typename Visit>
void for_floats(uint32_t first, uint32_t last, uint32_t step, Visit visit) {
  for (uint32_t bits = first; bits < last; bits += step) {
    visit(std::bit_cast<float>(bits));
    visit(std::bit_cast<float>(bits | kSign));
  }
}

// Where long double has no more digits than double, the reference itself is a unit off in rare cases.
bool reference_is_wide() {
  return std::numeric_limits<long double>::digits >= 64;
}

TEST(ExpF32, IsCorrectlyRoundedWhereItIsNeitherOneNorZero) {
  if (!reference_is_wide()) {
    GTEST_SKIP() << "long double is no wider than double here";
  }
  int64_t checked = 0;
  int64_t wrong = 0;
  for_floats(0x33000000U, 0x42D00000U, 101, [&](float x) {  // 2^-25 … 104
    const auto expected = static_cast<float>(std::exp(static_cast<long double>(x)));
    wrong += std::bit_cast<uint32_t>(exp_f32(x)) != std::bit_cast<uint32_t>(expected) ? 1 : 0;
    ++checked;
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(checked, 5'000'000);
}

TEST(ExpF32, CoversEveryExponent) {
  for_floats(kSmallest, kInfinity, 12'345, [](float x) {
    const auto expected = static_cast<float>(std::exp(static_cast<long double>(x)));
    ASSERT_EQ(exp_f32(x), expected) << std::hexfloat << x;
  });
}

TEST(ExpF32, Saturates) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(exp_f32(0.0F), 1.0F);
  EXPECT_EQ(exp_f32(-0.0F), 1.0F);
  EXPECT_EQ(exp_f32(0x1.62e42ep+6F), 0x1.ffff08p+127F);
  EXPECT_EQ(exp_f32(0x1.62e430p+6F), kInf);
  EXPECT_EQ(exp_f32(std::numeric_limits<float>::max()), kInf);
  EXPECT_EQ(exp_f32(kInf), kInf);
  EXPECT_EQ(exp_f32(-0x1.9fe148p+6F), 0x1p-149F);  // the smallest subnormal
  EXPECT_EQ(exp_f32(-0x1.9feb86p+6F), 0.0F);
  EXPECT_EQ(exp_f32(-kInf), 0.0F);
  EXPECT_TRUE(std::isnan(exp_f32(std::numeric_limits<float>::quiet_NaN())));
}

// The digest was recorded with g++ 12 -O2; any machine, compiler or optimisation level must reproduce it.
TEST(ExpF32, HasTheSameBitsEverywhere) {
  uint64_t digest = 0xCBF29CE484222325U;  // FNV-1a over the result's bits
  for_floats(kSmallest, kInfinity, 1'009,
             [&](float x) { digest = (digest ^ std::bit_cast<uint32_t>(exp_f32(x))) * 0x100000001B3U; });
  EXPECT_EQ(digest, 1890530820901328312U);
}

TEST(ExpF32, IsMonotonicAcrossReductionSteps) {
  float previous = 0.0F;
  for (int32_t step = -104'000; step <= 88'000; ++step) {
    const float value = exp_f32(static_cast<float>(step) * 0.001F);
    ASSERT_GE(value, previous) << step;
    previous = value;
  }
}

}  // namespace
}  // namespace kipp
