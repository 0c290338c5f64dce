// Where a quantised weight lies in its tile, and how a lane turns what it holds into FP16, exactly.
#pragma once

#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

namespace kipp::cuda {

// Q8_0: [group][lane 4g+t]{row g: 8 bytes, row g+8: 8 bytes}. i: column in the group of 32.
template <typename Byte>
__device__ inline Byte& q8_place(Byte* tile, int32_t row, int32_t group, int32_t i) {
  return tile[group * 512 + (row % 8 * 4 + i / 8) * 16 + row / 8 * 8 + i % 8];
}

// AFFINE4: [lane 4g+t]{group 0: row g, row g+8; group 1: the same}, a word for 8 columns.
__device__ inline uint32_t& affine4_word(std::byte* tile, int32_t row, int32_t group, int32_t t) {
  return reinterpret_cast<uint32_t*>(tile)[(row % 8 * 4 + t) * 4 + group * 2 + row / 8];
}
__device__ inline uint32_t affine4_word(const std::byte* tile, int32_t row, int32_t group, int32_t t) {
  return reinterpret_cast<const uint32_t*>(tile)[(row % 8 * 4 + t) * 4 + group * 2 + row / 8];
}
// Of column i of 8 in its word: columns 2p and 2p+1 lie 16 bits apart, so that one mask takes out a pair.
__device__ constexpr int32_t affine4_shift(int32_t i) {
  return i / 2 * 4 + i % 2 * 16;
}

// out[p]: columns 2p, 2p+1 of a word of 8 nibbles. A nibble n below an FP16 number's exponent of 1024 makes 1024 + n,
// and four bits further up 1024 + 16n, from which n comes exactly.
__device__ inline void affine4_to_half(uint32_t word, uint32_t (&out)[4]) {
  const __half2 offset = __half2half2(__ushort_as_half(0x6400));  // 1024
  const __half2 sixteenth = __half2half2(__ushort_as_half(0x2C00));
  const __half2 minus_64 = __half2half2(__ushort_as_half(0xD400));
#pragma unroll
  for (int32_t p = 0; p < 4; ++p) {
    const uint32_t shifted = p < 2 ? word : word >> 8;
    const uint32_t pair = (shifted & (p % 2 == 0 ? 0x000F000FU : 0x00F000F0U)) | 0x64006400U;
    const __half2 value = *reinterpret_cast<const __half2*>(&pair);
    const __half2 quant = p % 2 == 0 ? __hsub2(value, offset) : __hfma2(value, sixteenth, minus_64);
    out[p] = *reinterpret_cast<const uint32_t*>(&quant);
  }
}

// words: 8 signed bytes. 1024 + n is the FP16 number 0x6400 | n for n < 1024: the cheapest way from bytes to FP16.
__device__ inline void q8_to_half(uint2 words, uint32_t (&out)[4]) {
  const __half2 offset = __half2half2(__ushort_as_half(0x6480));               // 1152
  const uint32_t flipped[2] = {words.x ^ 0x80808080U, words.y ^ 0x80808080U};  // byte + 128
#pragma unroll
  for (int32_t p = 0; p < 4; ++p) {
    const uint32_t pair = __byte_perm(flipped[p / 2], 0x64646464U, p % 2 == 0 ? 0x4140 : 0x4342);
    const __half2 value = __hsub2(*reinterpret_cast<const __half2*>(&pair), offset);
    out[p] = *reinterpret_cast<const uint32_t*>(&value);
  }
}

}  // namespace kipp::cuda
