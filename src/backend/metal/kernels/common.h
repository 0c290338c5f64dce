// What kernels share: sums over the lanes of a simdgroup in one order, and bf16. Metal only.
// A product and a sum are rounded where the source says so; kernels ask for fused multiply-adds by name.
#pragma once

#include <metal_stdlib>

#pragma clang fp contract(off)

namespace kipp_metal {

// The same bits in every lane: lanes 16 apart are added first, then 8, 4, 2 and 1.
inline float lane_sum(float value) {
  for (ushort apart = 16; apart > 0; apart /= 2) value += metal::simd_shuffle_xor(value, apart);
  return value;
}

inline float lane_max(float value) {
  for (ushort apart = 16; apart > 0; apart /= 2) value = metal::fmax(value, metal::simd_shuffle_xor(value, apart));
  return value;
}

// Two bf16 that lie side by side as one word: the first is the lower half.
inline float widen_low(uint pair) {
  return as_type<float>(pair << 16);
}
inline float widen_high(uint pair) {
  return as_type<float>(pair & 0xFFFF0000u);
}
inline float4 widen4(uint2 pairs) {
  return float4(widen_low(pairs.x), widen_high(pairs.x), widen_low(pairs.y), widen_high(pairs.y));
}
inline float widen(ushort bits) {
  return as_type<float>(uint(bits) << 16);
}

// To nearest even; a NaN stays a quiet NaN.
inline ushort round_to_bf16(float value) {
  const uint bits = as_type<uint>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return ushort((bits >> 16) | 0x0040u);
  return ushort((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace kipp_metal
