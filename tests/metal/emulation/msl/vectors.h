// Vectors of two, three and four elements, and reinterpreted bits. Metal Shading Language Specification: 2.2 Vector
// Data Types, 2.5 Alignment of Data Types, 3.1 Scalar and Vector Operators, "Type Conversions and Reinterpreting Data".
// Only .x .y .z .w and [] reach elements: kernels do without other swizzles.
#pragma once

#include "metal/emulation/msl/keywords.h"

namespace metal {

template <typename T, int N>
struct vec;

// 2.2.1 Accessing Vector Components, 2.2.2 Vector Constructors. A vector of two is aligned to its size.
template <typename T>
struct alignas(2 * sizeof(T)) vec<T, 2> {
  T x, y;
  vec() = default;
  vec(T all) : x(all), y(all) {}
  vec(T new_x, T new_y) : x(new_x), y(new_y) {}
  T& operator[](uint i) { return (&x)[i]; }
  const T& operator[](uint i) const { return (&x)[i]; }
};

// A vector of three has the size and alignment of one of four.
template <typename T>
struct alignas(4 * sizeof(T)) vec<T, 3> {
  T x, y, z;
  vec() = default;
  vec(T all) : x(all), y(all), z(all) {}
  vec(T new_x, T new_y, T new_z) : x(new_x), y(new_y), z(new_z) {}
  T& operator[](uint i) { return (&x)[i]; }
  const T& operator[](uint i) const { return (&x)[i]; }
};

template <typename T>
struct alignas(4 * sizeof(T)) vec<T, 4> {
  T x, y, z, w;
  vec() = default;
  vec(T all) : x(all), y(all), z(all), w(all) {}
  vec(T new_x, T new_y, T new_z, T new_w) : x(new_x), y(new_y), z(new_z), w(new_w) {}
  T& operator[](uint i) { return (&x)[i]; }
  const T& operator[](uint i) const { return (&x)[i]; }
};

template <typename T>
struct Same {
  using type = T;
};

// 3.1: a scalar operand is widened to a vector.
#define KIPP_METAL_VECTOR_OPERATOR(op)                                            \
  template <typename T>                                                           \
  inline vec<T, 2> operator op(vec<T, 2> a, vec<T, 2> b) {                        \
    return vec<T, 2>(T(a.x op b.x), T(a.y op b.y));                               \
  }                                                                               \
  template <typename T>                                                           \
  inline vec<T, 4> operator op(vec<T, 4> a, vec<T, 4> b) {                        \
    return vec<T, 4>(T(a.x op b.x), T(a.y op b.y), T(a.z op b.z), T(a.w op b.w)); \
  }                                                                               \
  template <typename T, int N>                                                    \
  inline vec<T, N> operator op(vec<T, N> a, typename Same<T>::type b) {           \
    return a op vec<T, N>(b);                                                     \
  }                                                                               \
  template <typename T, int N>                                                    \
  inline vec<T, N> operator op(typename Same<T>::type a, vec<T, N> b) {           \
    return vec<T, N>(a) op b;                                                     \
  }                                                                               \
  template <typename T, int N, typename Other>                                    \
  inline vec<T, N>& operator op##=(vec<T, N>& a, Other b) {                       \
    return a = a op b;                                                            \
  }
KIPP_METAL_VECTOR_OPERATOR(+)
KIPP_METAL_VECTOR_OPERATOR(-)
KIPP_METAL_VECTOR_OPERATOR(*)
KIPP_METAL_VECTOR_OPERATOR(/)
#undef KIPP_METAL_VECTOR_OPERATOR

}  // namespace metal

using float2 = metal::vec<float, 2>;
using float4 = metal::vec<float, 4>;
using uint2 = metal::vec<uint, 2>;
using uint3 = metal::vec<uint, 3>;
using uint4 = metal::vec<uint, 4>;
using ushort2 = metal::vec<ushort, 2>;
using ushort3 = metal::vec<ushort, 3>;
using ushort4 = metal::vec<ushort, 4>;
using ulong2 = metal::vec<ulong, 2>;

// 2.1 Scalar Data Types: 16 bits of IEEE 754. Kernels only widen it, which is exact.
struct half {
  uint16_t bits;
  operator float() const {
    const uint32_t sign = uint32_t(bits & 0x8000u) << 16;
    const uint32_t exponent = (bits >> 10) & 31u;
    const uint32_t fraction = bits & 1023u;
    if (exponent == 0) {  // fraction · 2^-24, exact
      const float magnitude = float(fraction) * 5.9604644775390625e-8f;
      return sign != 0 ? -magnitude : magnitude;
    }
    const uint32_t wide = exponent == 31 ? 255u : exponent + 112u;
    const uint32_t word = sign | wide << 23 | fraction << 13;
    float value;
    __builtin_memcpy(&value, &word, sizeof value);
    return value;
  }
};

// "Type Conversions and Reinterpreting Data": both types have one size.
template <typename To, typename From>
inline To as_type(From from) {
  static_assert(sizeof(To) == sizeof(From), "as_type needs types of one size");
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}
