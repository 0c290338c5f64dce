// "Vector Data Types": two to four elements, size and alignment as the section's table says; components x, y, z, w and
// indices. Of "Scalar and Vector Operators" what kernels use: arithmetic, element by element.
#pragma once

namespace kipp_msl {

template <typename T, int N>
struct vec;

template <typename T>
struct alignas(2 * sizeof(T)) vec<T, 2> {
  T x, y;
  vec() = default;
  explicit vec(T all) : x(all), y(all) {}
  vec(T a, T b) : x(a), y(b) {}
  template <typename U>
  explicit vec(const vec<U, 2>& o) : x(static_cast<T>(o.x)), y(static_cast<T>(o.y)) {}
};

template <typename T>
struct alignas(4 * sizeof(T)) vec<T, 3> {
  T x, y, z;
  vec() = default;
  explicit vec(T all) : x(all), y(all), z(all) {}
  vec(T a, T b, T c) : x(a), y(b), z(c) {}
};

template <typename T>
struct alignas(4 * sizeof(T)) vec<T, 4> {
  T x, y, z, w;
  vec() = default;
  vec(T all) : x(all), y(all), z(all), w(all) {}  // NOLINT(google-explicit-constructor): scalars widen in MSL
  vec(T a, T b, T c, T d) : x(a), y(b), z(c), w(d) {}
  template <typename U>
  explicit vec(const vec<U, 4>& o)
      : x(static_cast<T>(o.x)), y(static_cast<T>(o.y)), z(static_cast<T>(o.z)), w(static_cast<T>(o.w)) {}
};

#define KIPP_VECTOR_OPERATOR(op)                                             \
  template <typename T>                                                      \
  vec<T, 4> operator op(const vec<T, 4>& a, const vec<T, 4>& b) {            \
    return {T(a.x op b.x), T(a.y op b.y), T(a.z op b.z), T(a.w op b.w)};     \
  }                                                                          \
  template <typename T>                                                      \
  vec<T, 4> operator op(const vec<T, 4>& a, std::type_identity_t<T> b) {     \
    return {T(a.x op b), T(a.y op b), T(a.z op b), T(a.w op b)};             \
  }                                                                          \
  template <typename T>                                                      \
  vec<T, 4>& operator op##=(vec<T, 4>& a, const vec<T, 4>& b) {              \
    return a = a op b;                                                       \
  }                                                                          \
  template <typename T>                                                      \
  vec<T, 4>& operator op##=(vec<T, 4>& a, std::type_identity_t<T> b) {       \
    return a = a op b;                                                       \
  }
KIPP_VECTOR_OPERATOR(+)
KIPP_VECTOR_OPERATOR(-)
KIPP_VECTOR_OPERATOR(*)
KIPP_VECTOR_OPERATOR(/)
#undef KIPP_VECTOR_OPERATOR

using float2 = vec<float, 2>;
using float3 = vec<float, 3>;
using float4 = vec<float, 4>;
using half4 = vec<half, 4>;
using char4 = vec<int8_t, 4>;
using uchar4 = vec<uchar, 4>;
using ushort2 = vec<ushort, 2>;
using ushort4 = vec<ushort, 4>;
using int2 = vec<int32_t, 2>;
using int4 = vec<int32_t, 4>;
using uint2 = vec<uint, 2>;
using uint3 = vec<uint, 3>;
using uint4 = vec<uint, 4>;

static_assert(sizeof(float3) == 16 && alignof(float4) == 16 && sizeof(ushort4) == 8 && alignof(char4) == 4);

}  // namespace kipp_msl
