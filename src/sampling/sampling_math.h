// The sampler's arithmetic: weights, sums and logarithms in integers, so that no result depends on order, compiler or
// machine. Of floating point only exactly rounded FP32 + - * / are used, and no doubles: host, CUDA and Metal samplers
// share these definitions. The algorithm as a whole is in docs/sampling.md.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/host_device.h"

namespace kipp {

inline constexpr float kMaxFinite = 0x1.fffffep+127F;
inline constexpr int32_t kWeightBits = 44;  // the best token weighs 2^44: 2^19 of them still sum below 2^63
inline constexpr uint64_t kMaxWeight = 1ULL << kWeightBits;
inline constexpr int32_t kMaxCandidates = 1 << 19;

KIPP_HOST_DEVICE inline uint32_t bits_from_float(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

KIPP_HOST_DEVICE inline bool is_finite(float value) {
  return (bits_from_float(value) & 0x7F800000U) != 0x7F800000U;
}

// Keeps a result that left the range of floats inside it, so that a large logit never turns into an infinite one.
KIPP_HOST_DEVICE inline float saturate(float value) {
  return value > kMaxFinite ? kMaxFinite : (value < -kMaxFinite ? -kMaxFinite : value);
}

// Order-preserving, never 0 (which stands for "excluded"). Zeros of both signs and subnormals share one key, since some
// devices flush subnormals. The value must be finite.
KIPP_HOST_DEVICE inline uint32_t order_key(float value) {
  const uint32_t bits = bits_from_float(value);
  if ((bits & 0x7F800000U) == 0U) {
    return 0x80000000U;
  }
  return (bits & 0x80000000U) != 0U ? ~bits : (bits | 0x80000000U);
}

// The value behind a key; zero for the key that zeros and subnormals share.
KIPP_HOST_DEVICE inline float logit_of_key(uint32_t key) {
  const uint32_t bits = (key & 0x80000000U) != 0U ? (key & 0x7FFFFFFFU) : ~key;
  float value = 0.0F;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// The upper 64 bits of a·b.
KIPP_HOST_DEVICE inline uint64_t multiply_high(uint64_t a, uint64_t b) {
  constexpr uint64_t kLow = 0xFFFFFFFFU;
  const uint64_t low = (a & kLow) * (b & kLow);
  const uint64_t middle_a = (a >> 32) * (b & kLow) + (low >> 32);
  const uint64_t middle_b = (a & kLow) * (b >> 32) + (middle_a & kLow);
  return (a >> 32) * (b >> 32) + (middle_a >> 32) + (middle_b >> 32);
}

// 2^(-fraction / 2^32) · 2^32, in (2^31, 2^32], within 4 units. 1 - f·q(f), q of degree 6 interpolating at the
// Chebyshev nodes of [0, 1]; the signs of its coefficients alternate, so that every step of the Horner scheme stays
// unsigned.
KIPP_HOST_DEVICE inline uint64_t exp2_negative(uint32_t fraction) {
  const uint64_t f = fraction;
  uint64_t q = 0xBDA6U;
  q = 0x9C200U - ((q * f) >> 32);
  q = 0x5728B0U - ((q * f) >> 32);
  q = 0x27641A9U - ((q * f) >> 32);
  q = 0xE358127U - ((q * f) >> 32);
  q = 0x3D7F7BCBU - ((q * f) >> 32);
  q = 0xB17217F7U - ((q * f) >> 32);
  return (1ULL << 32) - ((q * f) >> 32);
}

// log2(e) / temperature = mantissa · 2^exponent, mantissa in [2^39, 2^40). Made once a request, on the host
// (sampling/temperature.h).
struct InverseTemperature {
  uint64_t mantissa;
  int32_t exponent;
};

inline constexpr InverseTemperature kUnitTemperature = {0xB8AA3B295CU, -39};  // temperature 1: log2(e)

// The weight of a token whose logit lies `distance` >= 0 below the best: 2^44 · e^(-distance / temperature), rounded.
KIPP_HOST_DEVICE inline uint64_t weight_of(float distance, InverseTemperature inverse) {
  const uint32_t bits = bits_from_float(distance);
  const auto float_exponent = static_cast<int32_t>((bits >> 23) & 0xFFU);
  if (float_exponent == 0) {
    return kMaxWeight;
  }
  const uint64_t product = ((bits & 0x7FFFFFU) | 0x800000U) * inverse.mantissa;  // below 2^64, exact
  const int32_t shift = 118 - float_exponent - inverse.exponent;  // 150 - exponents - 32 bits of fraction
  if (shift < 0) {
    return 0;  // 2^30 halvings and more
  }
  const uint64_t halvings = shift >= 64 ? 0 : product >> shift;  // 32 fractional bits
  const uint64_t whole = halvings >> 32;
  if (whole > kWeightBits + 1) {
    return 0;
  }
  const uint64_t scaled = exp2_negative(static_cast<uint32_t>(halvings)) << (kWeightBits - 32);
  return whole == 0 ? scaled : (scaled + (1ULL << (whole - 1))) >> whole;
}

// log2(sum) with 32 fractional bits, sum >= 1, within 2 units: the digits of the logarithm by repeated squaring.
KIPP_HOST_DEVICE inline uint64_t log2_fixed(uint64_t sum) {
  int32_t exponent = 63;
  while ((sum >> 63) == 0U) {
    sum <<= 1;
    --exponent;
  }
  auto result = static_cast<uint64_t>(exponent);
  for (int32_t digit = 0; digit < 32; ++digit) {
    sum = multiply_high(sum, sum);  // m² of a mantissa m in [1, 2): in [1, 4) with 62 fractional bits
    const uint64_t bit = sum >> 63;
    sum <<= 1U - bit;
    result = (result << 1) | bit;
  }
  return result;
}

// ln(sum / 2^44) of a sum of weights that holds the best token's.
KIPP_HOST_DEVICE inline float log_of_sum(uint64_t sum) {
  constexpr uint64_t kLn2 = 0xB17217F7D1CF79ACU;                                           // ln(2) · 2^64
  const uint64_t halvings = log2_fixed(sum) - (static_cast<uint64_t>(kWeightBits) << 32);  // < 2^37
  const uint64_t nats = multiply_high(halvings << 26, kLn2);                               // 58 fractional bits
  return static_cast<float>(nats) * 0x1p-58F;
}

// ceil(sum · share / 2^32), share <= 2^32, sum < 2^63.
KIPP_HOST_DEVICE inline uint64_t share_of(uint64_t sum, uint64_t share) {
  const uint64_t low = (sum & 0xFFFFFFFFU) * share;
  return (sum >> 32) * share + (low >> 32) + ((low & 0xFFFFFFFFU) != 0U ? 1U : 0U);
}

// What the penalties make of one logit (docs/sampling.md). count: occurrences in the output.
KIPP_HOST_DEVICE inline float repetition_penalised(float logit, float penalty) {
  return saturate(logit > 0.0F ? logit / penalty : logit * penalty);
}
KIPP_HOST_DEVICE inline float count_penalised(float logit, float presence, float frequency, int32_t count) {
  const float scaled = frequency * static_cast<float>(count);
  const float penalty = presence + scaled;
  return saturate(logit - penalty);
}

}  // namespace kipp
