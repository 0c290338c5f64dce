// Sixteen FP32 lanes, whatever registers they take: one zmm, two ymm, or four registers of 128 bits. Included only by
// kernels, which are compiled once for each instruction set; everything has internal linkage, so that no instruction of
// a higher set reaches a symbol that others share.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define KIPP_INLINE inline __attribute__((always_inline))
#define KIPP_INLINE_LAMBDA __attribute__((always_inline))

namespace kipp::cpu {
namespace {

inline constexpr int32_t kLanes = 16;

// Asks for `bytes` from `begin` on, for use soon. Weights are read once, row groups after row groups that lie one
// behind the other in memory: asking for the next group while this one is used keeps memory busy where the processor's
// own prefetcher, which would have to follow each row, does not. Never a fault, wherever `begin` points.
KIPP_INLINE void prefetch(const void* begin, int32_t bytes) {
  constexpr int32_t kLine = 64;
  for (int32_t i = 0; i < bytes; i += kLine) {
    __builtin_prefetch(static_cast<const char*>(begin) + i, 0, 2);
  }
}

// std::min and std::max are functions of a library, whose symbols sets would share.
KIPP_INLINE int32_t smaller(int32_t a, int32_t b) {
  return a < b ? a : b;
}
KIPP_INLINE int32_t larger(int32_t a, int32_t b) {
  return a > b ? a : b;
}

#if defined(__AVX512F__)

struct F16 {
  __m512 v;
};

KIPP_INLINE F16 broadcast(float x) {
  return {_mm512_set1_ps(x)};
}
KIPP_INLINE F16 load(const float* p) {
  return {_mm512_loadu_ps(p)};
}
KIPP_INLINE void store(float* p, F16 a) {
  _mm512_storeu_ps(p, a.v);
}
KIPP_INLINE F16 add(F16 a, F16 b) {
  return {_mm512_add_ps(a.v, b.v)};
}
KIPP_INLINE F16 sub(F16 a, F16 b) {
  return {_mm512_sub_ps(a.v, b.v)};
}
KIPP_INLINE F16 mul(F16 a, F16 b) {
  return {_mm512_mul_ps(a.v, b.v)};
}
KIPP_INLINE F16 div(F16 a, F16 b) {
  return {_mm512_div_ps(a.v, b.v)};
}
// a·b + c
KIPP_INLINE F16 fma(F16 a, F16 b, F16 c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
// The larger; b where either is NaN.
KIPP_INLINE F16 max(F16 a, F16 b) {
  return {_mm512_max_ps(a.v, b.v)};
}
KIPP_INLINE F16 min(F16 a, F16 b) {
  return {_mm512_min_ps(a.v, b.v)};
}
KIPP_INLINE F16 widen(const uint16_t* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
}
KIPP_INLINE F16 from_int(const int32_t* p) {
  return {_mm512_cvtepi32_ps(_mm512_loadu_si512(p))};
}
// 2^k for integral k in [-126, 127].
KIPP_INLINE F16 power_of_two(F16 k) {
  const __m512i biased = _mm512_add_epi32(_mm512_cvtps_epi32(k.v), _mm512_set1_epi32(127));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(biased, 23))};
}
// Nearest integers, ties to even.
KIPP_INLINE void store_rounded(int32_t* p, F16 a) {
  _mm512_storeu_si512(p, _mm512_cvtps_epi32(a.v));
}
KIPP_INLINE F16 absolute(F16 a) {
  return {_mm512_abs_ps(a.v)};
}
// a where x >= bound, else 0; a where x is NaN.
KIPP_INLINE F16 zero_below(F16 x, float bound, F16 a) {
  return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x.v, _mm512_set1_ps(bound), _CMP_NLT_UQ), a.v)};
}
// Lanes l and l + 8, then l and l + 4, l + 2, l + 1.
KIPP_INLINE float total(F16 a) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

#elif defined(__AVX2__)

struct F16 {
  __m256 low, high;
};

KIPP_INLINE F16 broadcast(float x) {
  return {_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
KIPP_INLINE F16 load(const float* p) {
  return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
KIPP_INLINE void store(float* p, F16 a) {
  _mm256_storeu_ps(p, a.low);
  _mm256_storeu_ps(p + 8, a.high);
}
KIPP_INLINE F16 add(F16 a, F16 b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
KIPP_INLINE F16 sub(F16 a, F16 b) {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
KIPP_INLINE F16 mul(F16 a, F16 b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
KIPP_INLINE F16 div(F16 a, F16 b) {
  return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
KIPP_INLINE F16 fma(F16 a, F16 b, F16 c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
KIPP_INLINE F16 max(F16 a, F16 b) {
  return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
KIPP_INLINE F16 min(F16 a, F16 b) {
  return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}
KIPP_INLINE __m256 widen_half(const uint16_t* p) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
KIPP_INLINE F16 widen(const uint16_t* p) {
  return {widen_half(p), widen_half(p + 8)};
}
KIPP_INLINE F16 from_int(const int32_t* p) {
  return {_mm256_cvtepi32_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))),
          _mm256_cvtepi32_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 8)))};
}
KIPP_INLINE __m256 power_of_two_half(__m256 k) {
  const __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(k), _mm256_set1_epi32(127));
  return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
}
KIPP_INLINE F16 power_of_two(F16 k) {
  return {power_of_two_half(k.low), power_of_two_half(k.high)};
}
KIPP_INLINE void store_rounded(int32_t* p, F16 a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_cvtps_epi32(a.low));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8), _mm256_cvtps_epi32(a.high));
}
KIPP_INLINE F16 absolute(F16 a) {
  const __m256 sign = _mm256_set1_ps(-0.0F);
  return {_mm256_andnot_ps(sign, a.low), _mm256_andnot_ps(sign, a.high)};
}
KIPP_INLINE F16 zero_below(F16 x, float bound, F16 a) {
  const __m256 b = _mm256_set1_ps(bound);
  return {_mm256_and_ps(_mm256_cmp_ps(x.low, b, _CMP_NLT_UQ), a.low),
          _mm256_and_ps(_mm256_cmp_ps(x.high, b, _CMP_NLT_UQ), a.high)};
}
KIPP_INLINE float total(F16 a) {
  const __m256 eight = _mm256_add_ps(a.low, a.high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

#else  // four registers of 128 bits by the compiler's vector types: SSE2 has no fused product-sum, NEON has

using F4 = float __attribute__((vector_size(16)));
using I4 = int32_t __attribute__((vector_size(16)));
using U4 = uint32_t __attribute__((vector_size(16)));

struct F16 {
  F4 v[4];
};

#define KIPP_EACH_QUARTER(expression) \
  F16 result;                         \
  for (int32_t i = 0; i < 4; ++i) {   \
    result.v[i] = (expression);       \
  }                                   \
  return result

KIPP_INLINE F16 broadcast(float x) {
  KIPP_EACH_QUARTER((F4{x, x, x, x}));
}
KIPP_INLINE F16 load(const float* p) {
  F16 a;
  __builtin_memcpy(&a, p, sizeof a);
  return a;
}
KIPP_INLINE void store(float* p, F16 a) {
  __builtin_memcpy(p, &a, sizeof a);
}
KIPP_INLINE F16 add(F16 a, F16 b) {
  KIPP_EACH_QUARTER(a.v[i] + b.v[i]);
}
KIPP_INLINE F16 sub(F16 a, F16 b) {
  KIPP_EACH_QUARTER(a.v[i] - b.v[i]);
}
KIPP_INLINE F16 mul(F16 a, F16 b) {
  KIPP_EACH_QUARTER(a.v[i] * b.v[i]);
}
KIPP_INLINE F16 div(F16 a, F16 b) {
  KIPP_EACH_QUARTER(a.v[i] / b.v[i]);
}
#if defined(__aarch64__)
KIPP_INLINE F16 fma(F16 a, F16 b, F16 c) {
  KIPP_EACH_QUARTER((F4)vfmaq_f32((float32x4_t)c.v[i], (float32x4_t)a.v[i], (float32x4_t)b.v[i]));
}
#else
KIPP_INLINE F16 fma(F16 a, F16 b, F16 c) {
  KIPP_EACH_QUARTER(a.v[i] * b.v[i] + c.v[i]);
}
#endif
KIPP_INLINE F16 max(F16 a, F16 b) {
  KIPP_EACH_QUARTER(a.v[i] > b.v[i] ? a.v[i] : b.v[i]);
}
KIPP_INLINE F16 min(F16 a, F16 b) {
  KIPP_EACH_QUARTER(a.v[i] < b.v[i] ? a.v[i] : b.v[i]);
}
KIPP_INLINE F16 widen(const uint16_t* p) {
  F16 a;
  for (int32_t i = 0; i < 4; ++i) {
    const uint16_t* q = p + 4 * i;
    const U4 bits = {q[0], q[1], q[2], q[3]};
    a.v[i] = (F4)(bits << 16);
  }
  return a;
}
KIPP_INLINE F16 from_int(const int32_t* p) {
  F16 a;
  for (int32_t i = 0; i < 4; ++i) {
    I4 part;
    __builtin_memcpy(&part, p + 4 * i, sizeof part);
    a.v[i] = __builtin_convertvector(part, F4);
  }
  return a;
}
KIPP_INLINE F16 power_of_two(F16 k) {
  KIPP_EACH_QUARTER((F4)((__builtin_convertvector(k.v[i], I4) + 127) << 23));
}
#if defined(__aarch64__)
KIPP_INLINE void store_rounded(int32_t* p, F16 a) {
  for (int32_t i = 0; i < 4; ++i) {
    vst1q_s32(p + 4 * i, vcvtnq_s32_f32((float32x4_t)a.v[i]));
  }
}
#else
KIPP_INLINE void store_rounded(int32_t* p, F16 a) {
  for (int32_t i = 0; i < kLanes; ++i) {
    p[i] = static_cast<int32_t>(__builtin_lrintf(a.v[i / 4][i % 4]));
  }
}
#endif
KIPP_INLINE F16 absolute(F16 a) {
  KIPP_EACH_QUARTER((F4)((I4)a.v[i] & 0x7FFFFFFF));
}
KIPP_INLINE F16 zero_below(F16 x, float bound, F16 a) {
  KIPP_EACH_QUARTER((F4)((I4)a.v[i] & ~(x.v[i] < bound)));
}
KIPP_INLINE float total(F16 a) {
  const F4 four = (a.v[0] + a.v[2]) + (a.v[1] + a.v[3]);
  return (four[0] + four[2]) + (four[1] + four[3]);
}

#endif

KIPP_INLINE F16 zero() {
  return broadcast(0.0F);
}

// The first `count` < 16 lanes, zeros behind; nothing beyond them is read.
KIPP_INLINE F16 load_some(const float* p, int32_t count) {
  float lanes[kLanes] = {};
  for (int32_t i = 0; i < count; ++i) {
    lanes[i] = p[i];
  }
  return load(lanes);
}
KIPP_INLINE F16 widen_some(const uint16_t* p, int32_t count) {
  uint16_t lanes[kLanes] = {};
  for (int32_t i = 0; i < count; ++i) {
    lanes[i] = p[i];
  }
  return widen(lanes);
}
KIPP_INLINE void store_some(float* p, F16 a, int32_t count) {
  float lanes[kLanes];
  store(lanes, a);
  for (int32_t i = 0; i < count; ++i) {
    p[i] = lanes[i];
  }
}

// The same for elements of either type.
KIPP_INLINE F16 widen(const float* p) {
  return load(p);
}
KIPP_INLINE F16 widen_some(const float* p, int32_t count) {
  return load_some(p, count);
}

// e^x within 1.5 units in the last place: x = k·ln 2 + r, a polynomial for e^r, one exact scaling. 0 below -87, where
// e^x is at most 1.7e-38; infinity above 88.7; NaN for NaN. Coefficients: the Taylor series of e^r, whose remainder
// after r^7/7! is below 5e-9 relative for |r| <= 0.35.
KIPP_INLINE F16 exp(F16 x) {
  constexpr float kRoundingShift = 12582912.0F;  // 1.5·2^23: adding it rounds to an integer
  const F16 clamped = min(broadcast(88.8F), max(broadcast(-87.0F), x));
  const F16 shift = broadcast(kRoundingShift);
  const F16 k = sub(fma(clamped, broadcast(1.44269504F), shift), shift);
  F16 r = fma(k, broadcast(-0.693145752F), clamped);  // the first 16 bits of ln 2: the product with k is exact
  r = fma(k, broadcast(-1.42860682e-6F), r);
  F16 p = broadcast(1.0F / 5040.0F);
  p = fma(p, r, broadcast(1.0F / 720.0F));
  p = fma(p, r, broadcast(1.0F / 120.0F));
  p = fma(p, r, broadcast(1.0F / 24.0F));
  p = fma(p, r, broadcast(1.0F / 6.0F));
  p = fma(p, r, broadcast(0.5F));
  p = fma(p, r, broadcast(1.0F));
  p = fma(p, r, broadcast(1.0F));
  // Two factors, since 2^128 is not a float though its product with p may be infinity as it should.
  const F16 half = sub(fma(k, broadcast(0.5F), shift), shift);
  const F16 scaled = mul(mul(p, power_of_two(half)), power_of_two(sub(k, half)));
  return zero_below(x, -87.0F, scaled);
}

}  // namespace
}  // namespace kipp::cpu
