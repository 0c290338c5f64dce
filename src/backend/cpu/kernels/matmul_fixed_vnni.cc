// Quantised weights times fixed-point activations by vpdpbusd: the sums and roundings of matmul_fixed.cc, bit for bit.
// Sixteen rows of weights are turned once, so that each lane is a row and no sum runs across lanes; tokens follow.
#include "backend/cpu/kernels/fixed_panel.h"

namespace kipp::cpu::KIPP_CPU_LEVEL {
namespace {

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

template <typename Block>
void fill_panel(const std::byte* first, ptrdiff_t row_bytes, int32_t num_rows, int32_t num_blocks, bool has_next,
                Panel& panel) {
  constexpr int32_t kGroupBytes = kPanelRows * static_cast<int32_t>(sizeof(Block));  // a block of all rows
  const std::byte* next = first + kPanelRows * row_bytes;
  const __m512i offsets = row_offsets(row_bytes, num_rows);
  const __m512i to_unsigned = _mm512_set1_epi8(static_cast<char>(kUnsignedOffset));
  for (int32_t b = 0; b < num_blocks; ++b) {
    const std::byte* block = first + ptrdiff_t{b} * static_cast<ptrdiff_t>(sizeof(Block));
    if (has_next) {
      prefetch(next + ptrdiff_t{b} * kGroupBytes, kGroupBytes);
    }
    turn_block<Block>(block, row_bytes, num_rows, panel.words[b]);
    for (int32_t k = 0; k < kWords && !Block::kHasBias; ++k) {
      panel.words[b][k] = _mm512_xor_si512(panel.words[b][k], to_unsigned);
    }
    const __m512i words = first_words(block, offsets);
    panel.scales[b] = halves_to_floats(words);
    if constexpr (Block::kHasBias) {
      panel.biases[b] = halves_to_floats(_mm512_srli_epi32(words, 16));
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
  // A chain for each digit: the instruction takes five cycles, and two can start in one.
  const __m512i first = dot_digit(_mm512_setzero_si512(), words, run.digits[0]);
  const __m512i second = dot_digit(_mm512_set1_epi32(-kOffset * run.high_sum), words, run.digits[1]);
  const __m512i high = _mm512_add_epi32(_mm512_slli_epi32(first, 8), second);
  if constexpr (kDigits == 2) {
    return _mm512_cvtepi32_ps(high);
  } else {
    const __m512i last = dot_digit(_mm512_set1_epi32(-kOffset * run.digit_sum), words, run.digits[2]);
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
    const int32_t count = smaller(kPanelBlocks, num_blocks - b);
    const std::byte* first = args.weight + row * row_bytes + b * static_cast<ptrdiff_t>(sizeof(Block));
    fill_panel<Block>(first, row_bytes, num_rows, count, row + kPanelRows < args.row_end, panel);
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
  for (int32_t row = args.row_begin; row < args.row_end; row += kPanelRows) {
    multiply_rows<Block, kDigits>(args, row, smaller(kPanelRows, args.row_end - row));
  }
}

}  // namespace

const MatmulKernel kMatmulQ8Vnni16 = fixed_kernel<2>("matmul_q8_0_vnni_int16", kPanelRows, multiply<Q8Block, 2>);
const MatmulKernel kMatmulQ8Vnni24 = fixed_kernel<3>("matmul_q8_0_vnni_int24", kPanelRows, multiply<Q8Block, 3>);
const MatmulKernel kMatmulAffine4Vnni16 =
    fixed_kernel<2>("matmul_affine4_gs32_vnni_int16", kPanelRows, multiply<Affine4Block, 2>);
const MatmulKernel kMatmulAffine4Vnni24 =
    fixed_kernel<3>("matmul_affine4_gs32_vnni_int24", kPanelRows, multiply<Affine4Block, 3>);

}  // namespace kipp::cpu::KIPP_CPU_LEVEL
