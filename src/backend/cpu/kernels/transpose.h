// Sixteen rows of sixteen 32-bit words, turned, in AVX-512 registers.
#pragma once

#include <immintrin.h>

#include "backend/cpu/kernels/simd.h"

namespace kipp::cpu {
namespace {

// Word c of rows[r] becomes word r of rows[c]. Four rounds: pairs of words, pairs of double words, then quarters twice.
KIPP_INLINE void transpose(__m512i (&rows)[16]) {
  __m512i a[16];
  for (int32_t i = 0; i < 16; i += 2) {
    a[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    a[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  __m512i b[16];  // b[4g + k]: in each quarter q the words 4q + k of rows 4g … 4g + 3
  for (int32_t g = 0; g < 16; g += 4) {
    b[g] = _mm512_unpacklo_epi64(a[g], a[g + 2]);
    b[g + 1] = _mm512_unpackhi_epi64(a[g], a[g + 2]);
    b[g + 2] = _mm512_unpacklo_epi64(a[g + 1], a[g + 3]);
    b[g + 3] = _mm512_unpackhi_epi64(a[g + 1], a[g + 3]);
  }
  for (int32_t k = 0; k < 4; ++k) {
    const __m512i low_first = _mm512_shuffle_i32x4(b[k], b[4 + k], 0x44);   // quarters 0, 1 of row groups 0, 1
    const __m512i high_first = _mm512_shuffle_i32x4(b[k], b[4 + k], 0xEE);  // quarters 2, 3
    const __m512i low_last = _mm512_shuffle_i32x4(b[8 + k], b[12 + k], 0x44);
    const __m512i high_last = _mm512_shuffle_i32x4(b[8 + k], b[12 + k], 0xEE);
    rows[k] = _mm512_shuffle_i32x4(low_first, low_last, 0x88);
    rows[4 + k] = _mm512_shuffle_i32x4(low_first, low_last, 0xDD);
    rows[8 + k] = _mm512_shuffle_i32x4(high_first, high_last, 0x88);
    rows[12 + k] = _mm512_shuffle_i32x4(high_first, high_last, 0xDD);
  }
}

}  // namespace
}  // namespace kipp::cpu
