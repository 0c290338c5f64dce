// Quantised weights times fixed-point activations by products of 16-bit integers: the sums and roundings of
// matmul_fixed.cc, bit for bit. Eight rows at a time, whose sums become the lanes of one register.
#include "backend/cpu/kernels/fixed_point.h"

namespace kipp::cpu::KIPP_CPU_LEVEL {
namespace {

constexpr int32_t kRows = 8;
constexpr int32_t kTokenTile = 16;  // tokens that use widened weights before the next block

// Thirty-two 16-bit integers.
struct Wide {
  __m256i low, high;
};

KIPP_INLINE __m128i load_bytes(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}

KIPP_INLINE Wide widen_weights(const Q8Block& block) {
  return {_mm256_cvtepi8_epi16(load_bytes(block.weights)), _mm256_cvtepi8_epi16(load_bytes(block.weights + 16))};
}
KIPP_INLINE Wide widen_weights(const Affine4Block& block) {
  const __m128i both = load_bytes(block.nibbles);
  const __m128i low_half = _mm_set1_epi8(0x0F);
  return {_mm256_cvtepu8_epi16(_mm_and_si128(both, low_half)),
          _mm256_cvtepu8_epi16(_mm_and_si128(_mm_srli_epi16(both, 4), low_half))};
}

KIPP_INLINE Wide widen_digits(const int8_t* digits) {
  return {_mm256_cvtepi8_epi16(load_bytes(digits)), _mm256_cvtepi8_epi16(load_bytes(digits + 16))};
}

// 256·d0 + d1
template <int32_t kDigits>
KIPP_INLINE Wide high_integers(const FixedRun<kDigits>& run) {
  const Wide first = widen_digits(run.digits[0]);
  const Wide second = widen_digits(run.digits[1]);
  return {_mm256_add_epi16(_mm256_slli_epi16(first.low, 8), second.low),
          _mm256_add_epi16(_mm256_slli_epi16(first.high, 8), second.high)};
}

// Σ weight·integer of eight rows; a lane is a row.
KIPP_INLINE __m256i dot_rows(const Wide (&weights)[kRows], const Wide& x) {
  __m256i sums[kRows];
  for (int32_t r = 0; r < kRows; ++r) {
    sums[r] = _mm256_add_epi32(_mm256_madd_epi16(weights[r].low, x.low), _mm256_madd_epi16(weights[r].high, x.high));
  }
  const __m256i first = _mm256_hadd_epi32(_mm256_hadd_epi32(sums[0], sums[1]), _mm256_hadd_epi32(sums[2], sums[3]));
  const __m256i last = _mm256_hadd_epi32(_mm256_hadd_epi32(sums[4], sums[5]), _mm256_hadd_epi32(sums[6], sums[7]));
  return _mm256_add_epi32(_mm256_permute2x128_si256(first, last, 0x20), _mm256_permute2x128_si256(first, last, 0x31));
}

template <int32_t kDigits>
KIPP_INLINE __m256 exact_sum(const Wide (&weights)[kRows], const FixedRun<kDigits>& run) {
  const __m256 high = _mm256_cvtepi32_ps(dot_rows(weights, high_integers(run)));
  if constexpr (kDigits == 2) {
    return high;
  } else {
    const __m256 last = _mm256_cvtepi32_ps(dot_rows(weights, widen_digits(run.digits[2])));
    return _mm256_fmadd_ps(high, _mm256_set1_ps(256.0F), last);
  }
}

template <typename Block, int32_t kDigits>
void multiply_rows(const MultiplyArgs& args, int32_t row, int32_t num_rows, int32_t token, int32_t num_tokens) {
  const int32_t num_blocks = args.columns / kRun;
  const auto* blocks = reinterpret_cast<const Block*>(args.weight) + ptrdiff_t{row} * num_blocks;
  const auto* runs = reinterpret_cast<const FixedRun<kDigits>*>(args.packed) + ptrdiff_t{token} * num_blocks;
  __m256 sums[kTokenTile];
  for (__m256& sum : sums) {
    sum = _mm256_setzero_ps();
  }
  for (int32_t b = 0; b < num_blocks; ++b) {
    Wide weights[kRows];
    alignas(32) float scales[kRows];
    alignas(32) float biases[kRows];
    for (int32_t r = 0; r < kRows; ++r) {
      const Block& block = blocks[ptrdiff_t{r < num_rows ? r : 0} * num_blocks + b];
      weights[r] = widen_weights(block);
      scales[r] = _cvtsh_ss(block.scale);
      biases[r] = 0.0F;
      if constexpr (Block::kHasBias) {
        biases[r] = _cvtsh_ss(block.bias);
      }
    }
    for (int32_t t = 0; t < num_tokens; ++t) {
      const FixedRun<kDigits>& run = runs[ptrdiff_t{t} * num_blocks + b];
      const __m256 scale = _mm256_mul_ps(_mm256_load_ps(scales), _mm256_set1_ps(run.step));
      sums[t] = _mm256_fmadd_ps(exact_sum<kDigits>(weights, run), scale, sums[t]);
      if constexpr (Block::kHasBias) {
        sums[t] = _mm256_fmadd_ps(_mm256_load_ps(biases), _mm256_set1_ps(run.sum), sums[t]);
      }
    }
  }
  for (int32_t t = 0; t < num_tokens; ++t) {
    alignas(32) float lanes[kRows];
    _mm256_store_ps(lanes, sums[t]);
    for (int32_t r = 0; r < num_rows; ++r) {
      args.out[(token + t) * args.out_stride + row + r] = lanes[r];
    }
  }
}

template <typename Block, int32_t kDigits>
void multiply(const MultiplyArgs& args) {
  for (int32_t row = args.row_begin; row < args.row_end; row += kRows) {
    const int32_t num_rows = smaller(kRows, args.row_end - row);
    for (int32_t t = 0; t < args.num_tokens; t += kTokenTile) {
      const int32_t num_tokens = smaller(kTokenTile, args.num_tokens - t);
      multiply_rows<Block, kDigits>(args, row, num_rows, t, num_tokens);
    }
  }
}

}  // namespace

const MatmulKernel kMatmulQ8Madd16 = fixed_kernel<2>("matmul_q8_0_madd_int16", kRows, multiply<Q8Block, 2>);
const MatmulKernel kMatmulQ8Madd24 = fixed_kernel<3>("matmul_q8_0_madd_int24", kRows, multiply<Q8Block, 3>);
const MatmulKernel kMatmulAffine4Madd16 =
    fixed_kernel<2>("matmul_affine4_gs32_madd_int16", kRows, multiply<Affine4Block, 2>);
const MatmulKernel kMatmulAffine4Madd24 =
    fixed_kernel<3>("matmul_affine4_gs32_madd_int24", kRows, multiply<Affine4Block, 3>);

}  // namespace kipp::cpu::KIPP_CPU_LEVEL
