// "Scalar Data Types": integers of fixed width, half and bfloat, and as_type ("Type Conversions and Re-interpreting Data").
#pragma once

namespace kipp_msl {

using uchar = uint8_t;
using ushort = uint16_t;
using uint = uint32_t;
using ulong = uint64_t;

// Bits of `value` rounded to nearest even with `kFraction` bits of fraction and the exponent range of binary16.
inline uint16_t half_bits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000U;
  const float magnitude = std::fabs(value);
  if (!(magnitude == magnitude)) return static_cast<uint16_t>(sign | 0x7E00U);
  if (magnitude >= 65520.0F) return static_cast<uint16_t>(sign | 0x7C00U);
  if (magnitude < 0x1p-14F) {  // subnormal: a multiple of 2^-24
    return static_cast<uint16_t>(sign | static_cast<uint32_t>(std::nearbyint(magnitude * 0x1p24F)));
  }
  const uint32_t rounded = (bits & 0x7FFFFFFFU) + 0xFFFU + (bits >> 13 & 1U);
  return static_cast<uint16_t>(sign | ((rounded >> 13) - (112U << 10)));
}

inline float half_value(uint16_t bits) {
  const float magnitude = (bits & 0x7C00U) == 0x7C00U
                              ? std::bit_cast<float>(0x7F800000U | (bits & 0x3FFU) << 13)
                              : std::bit_cast<float>((bits & 0x7FFFU) << 13) * 0x1p112F;
  return (bits & 0x8000U) != 0 ? -magnitude : magnitude;
}

struct half {
  uint16_t bits;
  half() = default;
  explicit half(float value) : bits(half_bits(value)) {}
  operator float() const { return half_value(bits); }  // NOLINT(google-explicit-constructor): as in MSL
};

inline uint16_t bfloat_bits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<uint16_t>(bits >> 16 | 0x40U);
  return static_cast<uint16_t>((bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16);
}

struct bfloat {
  uint16_t bits;
  bfloat() = default;
  explicit bfloat(float value) : bits(bfloat_bits(value)) {}
  operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }  // NOLINT(google-explicit-constructor)
};

namespace metal {
template <typename To, typename From>
To as_type(From from) {
  static_assert(sizeof(To) == sizeof(From), "as_type needs types of one size");
  return __builtin_bit_cast(To, from);
}
}  // namespace metal

}  // namespace kipp_msl
