// Blocks of sixteen rows of a quantised matrix, turned so that each lane is a row, in AVX-512 registers.
#pragma once

#include <immintrin.h>

#include "backend/cpu/kernels/fixed_point.h"

namespace kipp::cpu {
namespace {

inline constexpr int32_t kPanelRows = 16;
inline constexpr int32_t kWords = kRun / 4;  // 32-bit words of a run: four columns each

// The first word of a block of each row: its scale, and its bias behind it where it has one. One gather instead of
// sixteen stores of two bytes, which a load of all of them would have to wait for.
KIPP_INLINE __m512i first_words(const std::byte* first, __m512i row_offsets) {
  return _mm512_i32gather_epi32(row_offsets, first, 1);
}
KIPP_INLINE __m512 halves_to_floats(__m512i words) {
  return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(words));
}
// Where each row begins; rows beyond num_rows are row 0 again.
KIPP_INLINE __m512i row_offsets(ptrdiff_t row_bytes, int32_t num_rows) {
  const __m512i row_numbers = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return _mm512_maskz_mullo_epi32(static_cast<__mmask16>((1U << num_rows) - 1U), row_numbers,
                                  _mm512_set1_epi32(static_cast<int32_t>(row_bytes)));
}

// Four words of each of sixteen rows, turned: lane r of words[k] is word k of row r. Rows beyond num_rows repeat row 0.
KIPP_INLINE void turn_four(const std::byte* first, ptrdiff_t row_bytes, int32_t num_rows, __m512i* words) {
  const auto row = [&](int32_t r) KIPP_INLINE_LAMBDA {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(first + (r < num_rows ? r : 0) * row_bytes));
  };
  __m512i z[4];  // quarters: rows i, 4 + i, 8 + i, 12 + i
  for (int32_t i = 0; i < 4; ++i) {
    z[i] = _mm512_castsi128_si512(row(i));
    z[i] = _mm512_inserti32x4(z[i], row(4 + i), 1);
    z[i] = _mm512_inserti32x4(z[i], row(8 + i), 2);
    z[i] = _mm512_inserti32x4(z[i], row(12 + i), 3);
  }
  const __m512i first_low = _mm512_unpacklo_epi32(z[0], z[1]);
  const __m512i first_high = _mm512_unpackhi_epi32(z[0], z[1]);
  const __m512i last_low = _mm512_unpacklo_epi32(z[2], z[3]);
  const __m512i last_high = _mm512_unpackhi_epi32(z[2], z[3]);
  words[0] = _mm512_unpacklo_epi64(first_low, last_low);
  words[1] = _mm512_unpackhi_epi64(first_low, last_low);
  words[2] = _mm512_unpacklo_epi64(first_high, last_high);
  words[3] = _mm512_unpackhi_epi64(first_high, last_high);
}

// The weights of a block of each row, a byte each, as they are stored: signed for Q8_0, 0 … 15 for AFFINE4_GS32.
template <typename Block>
KIPP_INLINE void turn_block(const std::byte* first, ptrdiff_t row_bytes, int32_t num_rows, __m512i (&words)[kWords]) {
  if constexpr (Block::kHasBias) {
    __m512i both[4];
    turn_four(first + offsetof(Affine4Block, nibbles), row_bytes, num_rows, both);
    const __m512i low_half = _mm512_set1_epi8(0x0F);
    for (int32_t k = 0; k < 4; ++k) {
      words[k] = _mm512_and_si512(both[k], low_half);
      words[4 + k] = _mm512_and_si512(_mm512_srli_epi16(both[k], 4), low_half);
    }
  } else {
    const std::byte* weights = first + offsetof(Q8Block, weights);
    turn_four(weights, row_bytes, num_rows, words);
    turn_four(weights + 16, row_bytes, num_rows, words + 4);
  }
}

}  // namespace
}  // namespace kipp::cpu
