// Quantised weights times fixed-point activations by vpdpbusd: the sums and roundings of matmul_fixed.cc, bit for bit.
// Sixteen rows of weights are turned once, so that each lane is a row and no sum runs across lanes; tokens follow.
#include "backend/cpu/kernels/fixed_point.h"
#include "backend/cpu/kernels/transpose.h"

namespace kipp::cpu::KIPP_CPU_LEVEL {
namespace {

constexpr int32_t kRows = 16;
constexpr int32_t kWords = kRun / 4;  // 32-bit words of a run: four columns each
constexpr int32_t kPanelBlocks = 32;  // blocks turned at a time: 16 KiB of the L1 cache
constexpr int32_t kTokenTile = 4;     // tokens whose sums stay in registers
constexpr uint32_t kUnsignedOffset =
    128;  // the instruction wants unsigned weights: q + 128 here, and 128·Σx off the sum

// kPanelBlocks blocks of sixteen rows: lane r of every vector belongs to row r.
struct alignas(64) Panel {
  __m512i words[kPanelBlocks][kWords];  // unsigned weights, four columns to a lane
  __m512 scales[kPanelBlocks];
  __m512 biases[kPanelBlocks];
};

// fp16 numbers of sixteen rows, row_bytes apart.
KIPP_INLINE __m512 gather_halves(const std::byte* first, ptrdiff_t row_bytes, int32_t num_rows) {
  alignas(32) uint16_t halves[kRows] = {};
  for (int32_t r = 0; r < num_rows; ++r) {
    __builtin_memcpy(&halves[r], first + r * row_bytes, sizeof halves[r]);
  }
  return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(halves)));
}

// Eight words of sixteen rows, turned: two rows share a register on the way in.
KIPP_INLINE void turn_eight(const __m256i (&rows)[kRows], __m512i (&words)[kWords]) {
  __m512i pairs[8];  // rows r and r + 8
  for (int32_t r = 0; r < 8; ++r) {
    pairs[r] = _mm512_inserti64x4(_mm512_castsi256_si512(rows[r]), rows[r + 8], 1);
  }
  __m512i a[8];
  for (int32_t r = 0; r < 8; r += 2) {
    a[r] = _mm512_unpacklo_epi32(pairs[r], pairs[r + 1]);
    a[r + 1] = _mm512_unpackhi_epi32(pairs[r], pairs[r + 1]);
  }
  __m512i b[8];  // b[4g + k]: quarters are words k and 4 + k of rows 4g … 4g + 3, then of rows 8 + 4g …
  for (int32_t g = 0; g < 8; g += 4) {
    b[g] = _mm512_unpacklo_epi64(a[g], a[g + 2]);
    b[g + 1] = _mm512_unpackhi_epi64(a[g], a[g + 2]);
    b[g + 2] = _mm512_unpacklo_epi64(a[g + 1], a[g + 3]);
    b[g + 3] = _mm512_unpackhi_epi64(a[g + 1], a[g + 3]);
  }
  const __m512i order = _mm512_setr_epi64(0, 1, 4, 5, 2, 3, 6, 7);  // rows 0 …, 8 …, 4 …, 12 … to their places
  for (int32_t k = 0; k < 4; ++k) {
    // Quarters of b[k]: word k of rows 0-3, word 4+k of rows 0-3, word k of rows 8-11, word 4+k of rows 8-11.
    const __m512i low = _mm512_shuffle_i32x4(b[k], b[4 + k], 0x88);   // word k of rows 0-3, 8-11, 4-7, 12-15
    const __m512i high = _mm512_shuffle_i32x4(b[k], b[4 + k], 0xDD);  // word 4+k likewise
    words[k] = _mm512_permutexvar_epi64(order, low);
    words[4 + k] = _mm512_permutexvar_epi64(order, high);
  }
}

template <typename Block>
void fill_block(const std::byte* first, ptrdiff_t row_bytes, int32_t num_rows, __m512i (&words)[kWords]);

template <>
KIPP_INLINE void fill_block<Q8Block>(const std::byte* first, ptrdiff_t row_bytes, int32_t num_rows,
                                     __m512i (&words)[kWords]) {
  __m256i rows[kRows];
  for (int32_t r = 0; r < kRows; ++r) {
    const std::byte* weights = first + (r < num_rows ? r : 0) * row_bytes + offsetof(Q8Block, weights);
    rows[r] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights));
  }
  turn_eight(rows, words);
  const __m512i offset = _mm512_set1_epi8(static_cast<char>(kUnsignedOffset));
  for (int32_t k = 0; k < kWords; ++k) {
    words[k] = _mm512_xor_si512(words[k], offset);
  }
}

template <>
KIPP_INLINE void fill_block<Affine4Block>(const std::byte* first, ptrdiff_t row_bytes, int32_t num_rows,
                                          __m512i (&words)[kWords]) {
  const __m128i low_half = _mm_set1_epi8(0x0F);
  __m256i rows[kRows];
  for (int32_t r = 0; r < kRows; ++r) {
    const std::byte* nibbles = first + (r < num_rows ? r : 0) * row_bytes + offsetof(Affine4Block, nibbles);
    const __m128i both = _mm_loadu_si128(reinterpret_cast<const __m128i*>(nibbles));
    rows[r] = _mm256_set_m128i(_mm_and_si128(_mm_srli_epi16(both, 4), low_half), _mm_and_si128(both, low_half));
  }
  turn_eight(rows, words);
}

template <typename Block>
void fill_panel(const std::byte* first, ptrdiff_t row_bytes, int32_t num_rows, int32_t num_blocks, Panel& panel) {
  for (int32_t b = 0; b < num_blocks; ++b) {
    const std::byte* block = first + ptrdiff_t{b} * static_cast<ptrdiff_t>(sizeof(Block));
    fill_block<Block>(block, row_bytes, num_rows, panel.words[b]);
    panel.scales[b] = gather_halves(block, row_bytes, num_rows);
    if constexpr (Block::kHasBias) {
      panel.biases[b] = gather_halves(block + offsetof(Block, bias), row_bytes, num_rows);
    }
  }
}

KIPP_INLINE __m512i dot_digit(__m512i sum, const __m512i (&words)[kWords], const int8_t* digits) {
  for (int32_t k = 0; k < kWords; ++k) {
    int32_t four = 0;
    __builtin_memcpy(&four, digits + 4 * k, sizeof four);
    sum = _mm512_dpbusd_epi32(sum, words[k], _mm512_set1_epi32(four));
  }
  return sum;
}

// Σ w·integer over the block, rounded to FP32; a lane is a row.
template <typename Block, int32_t kDigits>
KIPP_INLINE __m512 exact_sum(const __m512i (&words)[kWords], const FixedRun<kDigits>& run) {
  constexpr int32_t kOffset = Block::kHasBias ? 0 : static_cast<int32_t>(kUnsignedOffset);
  const __m512i first = dot_digit(_mm512_setzero_si512(), words, run.digits[0]);
  __m512i high = dot_digit(_mm512_slli_epi32(first, 8), words, run.digits[1]);
  high = _mm512_sub_epi32(high, _mm512_set1_epi32(kOffset * run.high_sum));
  if constexpr (kDigits == 2) {
    return _mm512_cvtepi32_ps(high);
  } else {
    __m512i last = dot_digit(_mm512_setzero_si512(), words, run.digits[2]);
    last = _mm512_sub_epi32(last, _mm512_set1_epi32(kOffset * run.digit_sum));
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(high), _mm512_set1_ps(256.0F), _mm512_cvtepi32_ps(last));
  }
}

// A panel times kTokens tokens; runs[t]: the token's first run of the panel. Sums go on from what out holds.
template <typename Block, int32_t kDigits, int32_t kTokens>
void multiply_panel(const Panel& panel, int32_t num_blocks, const FixedRun<kDigits>* runs, ptrdiff_t runs_per_token,
                    float* out, ptrdiff_t out_stride, __mmask16 rows) {
  __m512 sums[size_t{kTokens}];
  for (int32_t t = 0; t < kTokens; ++t) {
    sums[t] = _mm512_maskz_loadu_ps(rows, out + t * out_stride);
  }
  for (int32_t b = 0; b < num_blocks; ++b) {
    for (int32_t t = 0; t < kTokens; ++t) {
      const FixedRun<kDigits>& run = runs[t * runs_per_token + b];
      const __m512 scale = _mm512_mul_ps(panel.scales[b], _mm512_set1_ps(run.step));
      sums[t] = _mm512_fmadd_ps(exact_sum<Block, kDigits>(panel.words[b], run), scale, sums[t]);
      if constexpr (Block::kHasBias) {
        sums[t] = _mm512_fmadd_ps(panel.biases[b], _mm512_set1_ps(run.sum), sums[t]);
      }
    }
  }
  for (int32_t t = 0; t < kTokens; ++t) {
    _mm512_mask_storeu_ps(out + t * out_stride, rows, sums[t]);
  }
}

template <typename Block, int32_t kDigits>
void multiply_rows(const MultiplyArgs& args, int32_t row, int32_t num_rows) {
  const int32_t num_blocks = args.columns / kRun;
  const ptrdiff_t row_bytes = ptrdiff_t{num_blocks} * static_cast<ptrdiff_t>(sizeof(Block));
  const auto rows = static_cast<__mmask16>((1U << num_rows) - 1U);
  Panel panel;
  for (int32_t t = 0; t < args.num_tokens; ++t) {
    _mm512_mask_storeu_ps(args.out + t * args.out_stride + row, rows, _mm512_setzero_ps());
  }
  for (int32_t b = 0; b < num_blocks; b += kPanelBlocks) {
    const int32_t count = num_blocks - b < kPanelBlocks ? num_blocks - b : kPanelBlocks;
    const std::byte* first = args.weight + row * row_bytes + b * static_cast<ptrdiff_t>(sizeof(Block));
    fill_panel<Block>(first, row_bytes, num_rows, count, panel);
    const auto* runs = reinterpret_cast<const FixedRun<kDigits>*>(args.packed) + b;
    float* out = args.out + row;
    int32_t t = 0;
    for (; t + kTokenTile <= args.num_tokens; t += kTokenTile) {
      multiply_panel<Block, kDigits, kTokenTile>(panel, count, runs + ptrdiff_t{t} * num_blocks, num_blocks,
                                                 out + t * args.out_stride, args.out_stride, rows);
    }
    for (; t < args.num_tokens; ++t) {
      multiply_panel<Block, kDigits, 1>(panel, count, runs + ptrdiff_t{t} * num_blocks, num_blocks,
                                        out + t * args.out_stride, args.out_stride, rows);
    }
  }
}

template <typename Block, int32_t kDigits>
void multiply(const MultiplyArgs& args) {
  for (int32_t row = args.row_begin; row < args.row_end; row += kRows) {
    multiply_rows<Block, kDigits>(args, row, args.row_end - row < kRows ? args.row_end - row : kRows);
  }
}

template <int32_t kDigits>
size_t packed_bytes(int32_t num_tokens, int32_t columns) {
  return fixed_bytes<kDigits>(num_tokens, columns);
}

template <typename Block, int32_t kDigits>
constexpr MatmulKernel kernel(const char* name) {
  return {name, kRows, 1, packed_bytes<kDigits>, pack_fixed<kDigits>, multiply<Block, kDigits>};
}

}  // namespace

const MatmulKernel kMatmulQ8Vnni16 = kernel<Q8Block, 2>("matmul_q8_0_vnni_int16");
const MatmulKernel kMatmulQ8Vnni24 = kernel<Q8Block, 3>("matmul_q8_0_vnni_int24");
const MatmulKernel kMatmulAffine4Vnni16 = kernel<Affine4Block, 2>("matmul_affine4_gs32_vnni_int16");
const MatmulKernel kMatmulAffine4Vnni24 = kernel<Affine4Block, 3>("matmul_affine4_gs32_vnni_int24");

}  // namespace kipp::cpu::KIPP_CPU_LEVEL
