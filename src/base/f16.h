// IEEE binary16 as its bits. Widening is exact, subnormals included.
#pragma once

#include <bit>
#include <cstdint>

namespace kipp {

constexpr float f16_to_f32(uint16_t bits) {
  const uint32_t sign = (uint32_t{bits} & 0x8000U) << 16;
  const uint32_t magnitude = bits & 0x7FFFU;
  if (magnitude < 0x0400U) {  // zero and subnormals: a multiple of 2^-24
    const float value = static_cast<float>(magnitude) * 0x1p-24F;
    return sign == 0 ? value : -value;
  }
  const uint32_t exponent_shift =
      magnitude < 0x7C00U ? 112U << 23 : 224U << 23;  // 127 - 15; infinity and NaN: 255 - 31
  return std::bit_cast<float>(sign | ((magnitude << 13) + exponent_shift));
}

}  // namespace kipp
