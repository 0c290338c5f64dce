// How matrices are stored (model/weights.h), eight weights of a lane at a time, as the integers or the bf16 that they
// are. Four lanes share a group of 32 columns in every type. Metal only.
#pragma once

#include <metal_stdlib>

#include "backend/metal/kernels/arguments.h"
#include "backend/metal/kernels/common.h"

namespace kipp_metal {

// The weights of a lane: value · scale + bias.
struct Eight {
  float4 low, high;
  float scale, bias;
};

inline float half_bits(ushort bits) {
  return float(as_type<half>(bits));
}

// Two bytes, signed; and the nibbles of four bytes.
inline float2 signed_bytes(ushort pair) {
  return float2(float(char(pair & 0xFF)), float(char(pair >> 8)));
}
inline float4 nibbles(uint word, uint shift) {
  return float4(float((word >> shift) & 15u), float((word >> (shift + 8)) & 15u), float((word >> (shift + 16)) & 15u),
                float((word >> (shift + 24)) & 15u));
}

// Each has: row_bytes; load of the eight weights that `lane` takes of the 256 columns from `begin` on; which columns
// those are, four and four, relative to begin; and how their products with x and the sum of these x enter a sum.
struct Bf16 {
  static ulong row_bytes(uint columns) { return ulong(columns) * 2; }
  static uint low_columns(uint lane) { return lane * 8; }
  static uint high_columns(uint lane) { return lane * 8 + 4; }
  static Eight load(device const uchar* row, uint begin, uint lane) {
    const uint4 words = *reinterpret_cast<device const uint4*>(row + (begin + lane * 8) * 2);
    Eight eight;
    eight.low = widen4(uint2(words.x, words.y));
    eight.high = widen4(uint2(words.z, words.w));
    eight.scale = 1.0f;
    eight.bias = 0.0f;
    return eight;
  }
  static float add(float sum, Eight, float products, float) { return sum + products; }
};

// 32 weights: fp16 scale, 32 signed bytes.
struct Q8_0 {
  static ulong row_bytes(uint columns) { return ulong(columns / 32) * 34; }
  static uint low_columns(uint lane) { return lane * 8; }
  static uint high_columns(uint lane) { return lane * 8 + 4; }
  static Eight load(device const uchar* row, uint begin, uint lane) {
    device const ushort* block = reinterpret_cast<device const ushort*>(row + (begin / 32 + lane / 4) * 34);
    device const ushort* quants = block + 1 + lane % 4 * 4;
    const float2 a = signed_bytes(quants[0]);
    const float2 b = signed_bytes(quants[1]);
    const float2 c = signed_bytes(quants[2]);
    const float2 d = signed_bytes(quants[3]);
    Eight eight;
    eight.low = float4(a.x, a.y, b.x, b.y);
    eight.high = float4(c.x, c.y, d.x, d.y);
    eight.scale = half_bits(block[0]);
    eight.bias = 0.0f;
    return eight;
  }
  static float add(float sum, Eight eight, float products, float) { return metal::fma(eight.scale, products, sum); }
};

// 32 weights: fp16 scale, fp16 bias, 16 bytes: weights 0 to 15 in the low nibbles, 16 to 31 in the high ones.
struct Affine4 {
  static ulong row_bytes(uint columns) { return ulong(columns / 32) * 20; }
  static uint low_columns(uint lane) { return lane / 4 * 32 + lane % 4 * 4; }
  static uint high_columns(uint lane) { return low_columns(lane) + 16; }
  static Eight load(device const uchar* row, uint begin, uint lane) {
    device const uint* block = reinterpret_cast<device const uint*>(row + (begin / 32 + lane / 4) * 20);
    const uint word = block[1 + lane % 4];
    Eight eight;
    eight.low = nibbles(word, 0);
    eight.high = nibbles(word, 4);
    eight.scale = half_bits(ushort(block[0] & 0xFFFFu));
    eight.bias = half_bits(ushort(block[0] >> 16));
    return eight;
  }
  static float add(float sum, Eight eight, float products, float sum_of_x) {
    return metal::fma(eight.bias, sum_of_x, metal::fma(eight.scale, products, sum));
  }
};

}  // namespace kipp_metal
