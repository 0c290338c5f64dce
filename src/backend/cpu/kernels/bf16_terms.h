// Numbers as sums of BF16 numbers, in AVX-512 registers.
#pragma once

#include <immintrin.h>

#include "backend/cpu/kernels/simd.h"

namespace kipp::cpu {
namespace {

// The BF16 of 32 numbers in order, two to a word; each number becomes what its BF16 leaves.
KIPP_INLINE __m512i next_term(__m512& low, __m512& high) {
  const __m512bh both = _mm512_cvtne2ps_pbh(high, low);
  __m512i bits;
  __builtin_memcpy(&bits, &both, sizeof bits);
  const __m512i low_bits = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(bits));
  const __m512i high_bits = _mm512_cvtepu16_epi32(_mm512_extracti32x8_epi32(bits, 1));
  low = _mm512_sub_ps(low, _mm512_castsi512_ps(_mm512_slli_epi32(low_bits, 16)));
  high = _mm512_sub_ps(high, _mm512_castsi512_ps(_mm512_slli_epi32(high_bits, 16)));
  return bits;
}

}  // namespace
}  // namespace kipp::cpu
