// Functions of single numbers. Metal Shading Language Specification: 6.2 Common Functions, 6.3 Integer Functions, 6.4
// Relational Functions, 6.5 Math Functions. exp is good to 1 unit in the last place here and to 4 there ("ULPs and
// Relative Error"); sqrt and / are correctly rounded in both.
#pragma once

#include "metal/emulation/msl/vectors.h"

#define INFINITY __builtin_inff()  // 6.5, constants

namespace metal {

// 6.5 Math Functions.
inline float fma(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
inline float sqrt(float x) {
  return __builtin_sqrtf(x);
}
inline float exp(float x) {
  return __builtin_expf(x);
}
inline float fmax(float a, float b) {
  return __builtin_fmaxf(a, b);
}
inline float fabs(float x) {
  return __builtin_fabsf(x);
}
inline float4 fma(float4 a, float4 b, float4 c) {
  return float4(fma(a.x, b.x, c.x), fma(a.y, b.y, c.y), fma(a.z, b.z, c.z), fma(a.w, b.w, c.w));
}

// 6.3 Integer Functions. One type for both operands, as Metal's overloads would be ambiguous otherwise.
inline uint min(uint a, uint b) {
  return a < b ? a : b;
}
inline uint max(uint a, uint b) {
  return a < b ? b : a;
}
inline int min(int a, int b) {
  return a < b ? a : b;
}
inline int max(int a, int b) {
  return a < b ? b : a;
}

// 6.4 Relational Functions.
inline bool isnan(float x) {
  return __builtin_isnan(x);
}
inline bool isfinite(float x) {
  return __builtin_isfinite(x);
}

}  // namespace metal
