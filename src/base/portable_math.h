// exp with the same bits on every machine and compiler: only IEEE + - * of doubles and bit operations, in a fixed
// order. Needs -ffp-contract=off (nvcc: -fmad=false) and no fast-math. For host and CUDA code; Metal has no double, so
// what must agree there bit for bit (the sampler) uses the integer arithmetic of sampling/sampling_math.h instead.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

#include "base/host_device.h"

namespace kipp {

// memcpy and not std::bit_cast: the latter cannot be called from device code.
KIPP_HOST_DEVICE inline double double_from_bits(uint64_t bits) {
  double value = 0.0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

KIPP_HOST_DEVICE inline uint64_t bits_from_double(double value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// e^x: x = k·ln 2 + r with |r| <= ln2/2, e^r by its Taylor series to r^13 (remainder below 5e-18), then one rounding of
// 2^k·e^r to float, which also gives subnormal results correctly. Infinity above 88.7228, 0 below -103.972, NaN for
// NaN. The double is within 2 of its units of e^x, so the float is correctly rounded unless e^x lies within 2^-52
// (relative) of the middle of two floats. Run over every float of magnitude 2^-25 to 104 it equals the rounded 80-bit
// expl on all 530,579,458 of them; smaller ones give 1 (portable_math_test.cc takes every 101st).
KIPP_HOST_DEVICE inline float exp_f32(float x) {
  constexpr double kLog2E = 0x1.71547652b82fep+0;
  constexpr double kLn2High = 0x1.62e42fefap-1;  // 36 bits: its product with |k| <= 150 is exact
  constexpr double kLn2Low = 0x1.cf79abc9e3b3ap-40;
  constexpr double kRoundingShift = 0x1.8p52;  // adding it rounds to an integer, held in the low bits
  if (!(x <= 0x1.62e42ep+6F)) {                // the largest float whose exponential is finite; NaN comes here too
    return x + std::numeric_limits<float>::infinity();
  }
  if (x < -104.0F) {
    return 0.0F;
  }
  const double wide = x;
  const double shifted = wide * kLog2E + kRoundingShift;
  const double k = shifted - kRoundingShift;
  const double r = (wide - k * kLn2High) - k * kLn2Low;
  double p = 1.0 / 6227020800.0;
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  const auto exponent = static_cast<int32_t>(static_cast<uint32_t>(bits_from_double(shifted)));
  return static_cast<float>(p * double_from_bits(static_cast<uint64_t>(exponent + 1023) << 52));
}

}  // namespace kipp
