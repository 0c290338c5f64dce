// Turns a request's parameters into the integers that the sampling arithmetic works with.
#pragma once

#include <cmath>
#include <cstdint>

#include "sampling/sampling_math.h"

namespace kipp {

// Below this the sampler is greedy: a draw would only be about rounding. Two neighbouring floats near 20 (2^-19 apart)
// differ by a factor e^-0.19 in probability at 1e-5 and by e^-1.9 at 1e-6, and logits carry errors larger than that.
inline constexpr float kGreedyTemperature = 1e-5F;

// temperature: finite, >= kGreedyTemperature.
inline InverseTemperature inverse_temperature(float temperature) {
  constexpr double kLog2E = 0x1.71547652b82fep+0;
  int exponent = 0;
  const double fraction = std::frexp(kLog2E / static_cast<double>(temperature), &exponent);  // in [0.5, 1)
  return {static_cast<uint64_t>(std::ldexp(fraction, 40)), exponent - 40};
}

// A share in [0, 1] with 32 fractional bits, rounded down.
inline uint64_t fixed_share(float share) {
  return static_cast<uint64_t>(std::ldexp(static_cast<double>(share), 32));
}

// The least weight that min_p keeps: ceil(min_p · 2^44).
inline uint64_t least_weight(float min_p) {
  return static_cast<uint64_t>(std::ceil(std::ldexp(static_cast<double>(min_p), kWeightBits)));
}

}  // namespace kipp
