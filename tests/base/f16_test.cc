// Widening of all 65,536 halves, against their definition.
#include "base/f16.h"

#include <gtest/gtest.h>

#include <cmath>

namespace kipp {
namespace {

TEST(F16, WidensEveryHalfExactly) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto exponent = static_cast<int>(bits >> 10 & 31);
    const auto fraction = static_cast<int>(bits & 1023);
    const float found = f16_to_f32(static_cast<uint16_t>(bits));
    ASSERT_EQ(std::signbit(found), bits >= 0x8000) << bits;
    if (exponent == 31 && fraction != 0) {
      ASSERT_TRUE(std::isnan(found)) << bits;
      continue;
    }
    const double expected = exponent == 31  ? HUGE_VAL
                            : exponent == 0 ? std::ldexp(fraction, -24)
                                            : std::ldexp(1024 + fraction, exponent - 25);
    ASSERT_EQ(std::abs(static_cast<double>(found)), expected) << bits;
  }
}

TEST(F16, IsKnownAtCompileTime) {
  static_assert(f16_to_f32(0x3C00) == 1.0F);
  static_assert(f16_to_f32(0xFBFF) == -65504.0F);
  static_assert(f16_to_f32(0x0001) == 0x1p-24F);
}

}  // namespace
}  // namespace kipp
