// The integer arithmetic against long double, with the error bounds that sampling_math.h states.
#include "sampling/sampling_math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "sampling/temperature.h"

namespace kipp {
namespace {

TEST(OrderKey, KeepsTheOrderOfFloats) {
  float previous = -kMaxFinite;
  for (uint32_t bits = 0x7F7FFFFFU; bits >= 0x00800000U; bits -= 7'919) {
    const float value = -std::bit_cast<float>(bits);
    ASSERT_LE(order_key(previous), order_key(value));
    ASSERT_EQ(logit_of_key(order_key(value)), value);
    previous = value;
  }
  EXPECT_LT(order_key(-0x1p-126F), order_key(0.0F));
  EXPECT_LT(order_key(0.0F), order_key(0x1p-126F));
  EXPECT_GT(order_key(-kMaxFinite), 0U);
}

TEST(OrderKey, TreatsZerosAndSubnormalsAsOneValue) {
  for (const float value : {-0.0F, 0x1p-127F, -0x1p-127F, 0x1p-149F}) {
    EXPECT_EQ(order_key(value), order_key(0.0F));
  }
  EXPECT_EQ(logit_of_key(order_key(-0x1p-130F)), 0.0F);
}

TEST(MultiplyHigh, AgreesWithLongMultiplication) {
  std::mt19937_64 random(11);
  for (int32_t i = 0; i < 100'000; ++i) {
    const uint64_t a = random() >> (random() % 64);
    const uint64_t b = random() >> (random() % 64);
    __extension__ using Wide = unsigned __int128;
    ASSERT_EQ(multiply_high(a, b), static_cast<uint64_t>((static_cast<Wide>(a) * b) >> 64));
  }
}

TEST(Exp2Negative, IsWithinFourUnits) {
  EXPECT_EQ(exp2_negative(0), 1ULL << 32);
  for (uint64_t fraction = 0; fraction < (1ULL << 32); fraction += 4'099) {
    const long double exact = std::exp2(32.0L - static_cast<long double>(fraction) * 0x1p-32L);
    const auto found = static_cast<long double>(exp2_negative(static_cast<uint32_t>(fraction)));
    ASSERT_LE(std::abs(found - exact), 4.0L) << fraction;
  }
}

// Error of the weight 2^44 · e^exponent: 4 units of a value that is at least 2^31, 2^-32 in the halvings, the
// mantissa's 2^-37 of them, and the rounding.
long double weight_bound(long double exponent) {
  return std::exp(exponent) * 0x1p44L * (4.0L * 0x1p-31L + 0x1p-32L - exponent * 0x1p-37L) + 0.5L;
}

TEST(WeightOf, IsTheExponentialWithinItsBound) {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> distances(0.0F, 40.0F);
  for (const float temperature : {0.1F, 0.7F, 1.0F, 1.7F, 100.0F}) {
    const InverseTemperature inverse = inverse_temperature(temperature);
    for (int32_t i = 0; i < 20'000; ++i) {
      const float distance = distances(random);
      const long double exponent = -static_cast<long double>(distance) / static_cast<long double>(temperature);
      const long double exact = std::exp(exponent) * 0x1p44L;
      ASSERT_LE(std::abs(static_cast<long double>(weight_of(distance, inverse)) - exact), weight_bound(exponent))
          << distance << " at " << temperature;
    }
  }
}

TEST(WeightOf, HasDefinedExtremes) {
  for (const float temperature : {kGreedyTemperature, 1.0F, kMaxFinite}) {
    EXPECT_EQ(weight_of(0.0F, inverse_temperature(temperature)), kMaxWeight);
    EXPECT_EQ(weight_of(0x1p-140F, inverse_temperature(temperature)), kMaxWeight);  // a subnormal distance is none
  }
  EXPECT_EQ(weight_of(kMaxFinite, kUnitTemperature), 0U);
  EXPECT_EQ(weight_of(kMaxFinite, inverse_temperature(kGreedyTemperature)), 0U);
  const auto of_one = static_cast<long double>(weight_of(kMaxFinite, inverse_temperature(kMaxFinite)));
  EXPECT_LE(std::abs(of_one - std::exp(-1.0L) * 0x1p44L), weight_bound(-1.0L));
  EXPECT_EQ(weight_of(32.0F, kUnitTemperature), 0U);  // e^-32 · 2^44 = 0.22
  EXPECT_EQ(weight_of(31.0F, kUnitTemperature), 1U);  // e^-31 · 2^44 = 0.61
}

TEST(WeightOf, FallsWithDistance) {
  uint64_t previous = kMaxWeight;
  for (uint32_t bits = 0; bits < 0x42800000U; bits += 1'021) {
    const uint64_t weight = weight_of(std::bit_cast<float>(bits), kUnitTemperature);
    ASSERT_LE(weight, previous + (previous >> 30) + 1);
    previous = weight;
  }
}

TEST(InverseTemperature, OfOneIsTheConstant) {
  const InverseTemperature inverse = inverse_temperature(1.0F);
  EXPECT_EQ(inverse.mantissa, kUnitTemperature.mantissa);
  EXPECT_EQ(inverse.exponent, kUnitTemperature.exponent);
}

TEST(Log2Fixed, IsWithinTwoUnits) {
  std::mt19937_64 random(3);
  for (int32_t i = 0; i < 20'000; ++i) {
    const uint64_t sum = (random() >> (random() % 64)) | 1U;
    const long double exact = std::log2(static_cast<long double>(sum)) * 0x1p32L;
    ASSERT_LE(std::abs(static_cast<long double>(log2_fixed(sum)) - exact), 2.0L) << sum;
  }
  for (int32_t exponent = 0; exponent < 64; ++exponent) {
    ASSERT_EQ(log2_fixed(1ULL << exponent), static_cast<uint64_t>(exponent) << 32);
  }
}

// Two units of log2_fixed's 2^-32, in nats, and one rounding to float.
TEST(LogOfSum, IsTheLogarithm) {
  EXPECT_EQ(log_of_sum(kMaxWeight), 0.0F);
  for (const uint64_t sum : {kMaxWeight + 1'000'000, 2 * kMaxWeight, 1'000 * kMaxWeight, 151'669 * kMaxWeight}) {
    const long double exact = std::log(static_cast<long double>(sum) * 0x1p-44L);
    const long double of_digits = 2.0L * 0x1p-32L * std::log(2.0L);
    EXPECT_LE(std::abs(static_cast<long double>(log_of_sum(sum)) - exact), of_digits + 0x1p-24L * (exact + of_digits));
  }
}

TEST(ShareOf, RoundsUp) {
  EXPECT_EQ(share_of(10, 1ULL << 31), 5U);
  EXPECT_EQ(share_of(11, 1ULL << 31), 6U);
  EXPECT_EQ(share_of(11, 0), 0U);
  EXPECT_EQ(share_of(11, 1ULL << 32), 11U);
  EXPECT_EQ(share_of((1ULL << 62) + 1, 1ULL << 32), (1ULL << 62) + 1);
  EXPECT_EQ(share_of(1, 1), 1U);
}

TEST(Saturate, KeepsResultsInRange) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(saturate(kInf), kMaxFinite);
  EXPECT_EQ(saturate(-kInf), -kMaxFinite);
  EXPECT_EQ(saturate(1.5F), 1.5F);
}

}  // namespace
}  // namespace kipp
