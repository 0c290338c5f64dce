// Quantised weights times fixed-point activations in AMX tiles, for many tokens: the sums and roundings of
// matmul_fixed.cc, bit for bit. Weights and digits are BF16, which holds them exactly. A tile product is one block of
// 32 columns, 16 tokens and 16 rows; its sums of integers are exact in FP32, whatever their order.
#include "backend/cpu/kernels/fixed_panel.h"
#include "backend/cpu/kernels/tiles.h"

namespace kipp::cpu::KIPP_CPU_LEVEL {
namespace {

constexpr int32_t kTileTokens = 16;
constexpr int32_t kTileStride = 64;  // bytes from a row of a tile to the next
constexpr int32_t kChunkBlocks = 8;  // blocks of all tokens before the next ones: sixteen tokens' stay in the L1 cache
constexpr int32_t kChunkTiles = 4;   // tiles of rows for which they are read
constexpr int32_t kPassGroups = 32;  // groups of sixteen tokens whose totals wait for the next blocks: 128 KiB
// With fewer, vpdpbusd is faster: a group of sixteen tokens costs as much when it is not full.
constexpr int32_t kLeastTokens = 12;

// A block of sixteen rows, the right operand: pairs of columns interleaved, a lane a row.
struct alignas(64) WeightTile {
  __m512i pairs[kRun / 2];
  __m512 scales;
  __m512 biases;
};

// A run of sixteen tokens, the left operands. The first digit is stored times 256.
template <int32_t kDigits>
struct alignas(64) TokenTile {
  uint16_t digits[size_t{kDigits}][kTileTokens][kRun];  // BF16
  float steps[kTileTokens];
  float sums[kTileTokens];
};

// Signed bytes, four to a lane, as two pairs of BF16.
KIPP_INLINE void widen_signed(__m512i word, __m512i* pairs) {
  const auto bits = [](__m512i integers) KIPP_INLINE_LAMBDA {
    return _mm512_castps_si512(_mm512_cvtepi32_ps(_mm512_srai_epi32(integers, 24)));
  };
  // The upper half of a lane of `low` to the lower half of the lane of `high`, whose own lower half is zero.
  const auto join = [](__m512i low, __m512i high) KIPP_INLINE_LAMBDA {
    const __m512i upper_bytes = _mm512_set4_epi32(0x0F0E0F0E, 0x0B0A0B0A, 0x07060706, 0x03020302);
    return _mm512_mask_shuffle_epi8(high, 0x3333333333333333U, low, upper_bytes);
  };
  pairs[0] = join(bits(_mm512_slli_epi32(word, 24)), bits(_mm512_slli_epi32(word, 16)));
  pairs[1] = join(bits(_mm512_slli_epi32(word, 8)), bits(word));
}

// Bytes of 0 … 15, four to a lane, as two pairs of BF16: looked up, as the numbers 0 … 15 need no arithmetic.
KIPP_INLINE void widen_nibbles(__m512i word, __m512i* pairs) {
  alignas(64) static constexpr uint16_t kNumbers[32] = {0x0000, 0x3F80, 0x4000, 0x4040, 0x4080, 0x40A0, 0x40C0, 0x40E0,
                                                        0x4100, 0x4110, 0x4120, 0x4130, 0x4140, 0x4150, 0x4160, 0x4170};
  const __m512i numbers = _mm512_load_si512(kNumbers);
  const __m512i first_two = _mm512_set4_epi32(0x0D0D0C0C, 0x09090808, 0x05050404, 0x01010000);
  const __m512i last_two = _mm512_set4_epi32(0x0F0F0E0E, 0x0B0B0A0A, 0x07070606, 0x03030202);
  pairs[0] = _mm512_permutexvar_epi16(_mm512_shuffle_epi8(word, first_two), numbers);
  pairs[1] = _mm512_permutexvar_epi16(_mm512_shuffle_epi8(word, last_two), numbers);
}

template <typename Block>
void fill_tile(const std::byte* block, ptrdiff_t row_bytes, int32_t num_rows, __m512i offsets, WeightTile& tile) {
  __m512i words[kWords];
  turn_block<Block>(block, row_bytes, num_rows, words);
  for (int32_t k = 0; k < kWords; ++k) {
    if constexpr (Block::kHasBias) {
      widen_nibbles(words[k], tile.pairs + ptrdiff_t{2} * k);
    } else {
      widen_signed(words[k], tile.pairs + ptrdiff_t{2} * k);
    }
  }
  const __m512i first = first_words(block, offsets);
  tile.scales = halves_to_floats(first);
  if constexpr (Block::kHasBias) {
    tile.biases = halves_to_floats(_mm512_srli_epi32(first, 16));
  }
}

// The first two digits have one sum where four bits times them, 32 times, stay below 2^24.
template <typename Block>
constexpr bool kSharedSum = Block::kHasBias;

// Sums of integers of a block, one for each digit: exact.
struct alignas(64) Sums {
  float values[3][kTileTokens][kPanelRows];
};

// Starts the products of a block. Tiles 0-2 are sums, 3-5 digits, 6 weights. What a sum held, the block before's, goes
// to memory only now, when it is long finished: so the tiles never wait for the vector units, nor these for them.
template <typename Block, int32_t kDigits, bool kIsFirst>
KIPP_INLINE void next_products(const WeightTile& weights, const TokenTile<kDigits>& tokens, Sums& before) {
  if constexpr (!kIsFirst) {
    tile_store<0>(before.values[0], kTileStride);
  }
  tile_load<6>(weights.pairs, kTileStride);
  tile_load<3>(tokens.digits[0], kTileStride);
  tile_zero<0>();
  tile_multiply<0, 3, 6>();
  tile_load<4>(tokens.digits[1], kTileStride);
  if constexpr (kSharedSum<Block>) {
    tile_multiply<0, 4, 6>();
  } else {
    if constexpr (!kIsFirst) {
      tile_store<1>(before.values[1], kTileStride);
    }
    tile_zero<1>();
    tile_multiply<1, 4, 6>();
  }
  if constexpr (kDigits == 3) {
    if constexpr (!kIsFirst) {
      tile_store<2>(before.values[2], kTileStride);
    }
    tile_load<5>(tokens.digits[2], kTileStride);
    tile_zero<2>();
    tile_multiply<2, 5, 6>();
  }
}

template <typename Block, int32_t kDigits>
KIPP_INLINE void finish_products(Sums& last) {
  tile_store<0>(last.values[0], kTileStride);
  if constexpr (!kSharedSum<Block>) {
    tile_store<1>(last.values[1], kTileStride);
  }
  if constexpr (kDigits == 3) {
    tile_store<2>(last.values[2], kTileStride);
  }
}

// Σ w·integer of a token, rounded to FP32; a lane is a row.
template <typename Block, int32_t kDigits>
KIPP_INLINE __m512 exact_sum(const Sums& sums, int32_t token) {
  __m512 high = _mm512_load_ps(sums.values[0][token]);
  if constexpr (!kSharedSum<Block>) {
    high = _mm512_add_ps(high, _mm512_load_ps(sums.values[1][token]));
  }
  if constexpr (kDigits == 3) {
    high = _mm512_fmadd_ps(high, _mm512_set1_ps(256.0F), _mm512_load_ps(sums.values[2][token]));
  }
  return high;
}

template <typename Block, int32_t kDigits>
KIPP_INLINE void add_block(const Sums& sums, const WeightTile& weights, const TokenTile<kDigits>& tokens,
                           __m512 (&totals)[kTileTokens]) {
#pragma GCC unroll 16
  for (int32_t t = 0; t < kTileTokens; ++t) {
    const __m512 scale = _mm512_mul_ps(weights.scales, _mm512_set1_ps(tokens.steps[t]));
    totals[t] = _mm512_fmadd_ps(exact_sum<Block, kDigits>(sums, t), scale, totals[t]);
    if constexpr (Block::kHasBias) {
      totals[t] = _mm512_fmadd_ps(weights.biases, _mm512_set1_ps(tokens.sums[t]), totals[t]);
    }
  }
}

// The totals of sixteen tokens and sixteen rows so far.
struct Totals {
  __m512 tokens[kTileTokens];
};

// Some blocks of a tile of rows times a group of tokens.
template <int32_t kDigits>
struct Product {
  const WeightTile* weights;         // [num_blocks]
  const TokenTile<kDigits>* tokens;  // likewise
  const std::byte* next;             // what is asked for meanwhile: kNextBytes for each block
  int32_t num_blocks;

  // All tiles of rows together ask for the next group of tokens.
  static constexpr int32_t kNextBytes = static_cast<int32_t>(sizeof(TokenTile<kDigits>)) / kChunkTiles;
};

template <typename Block, int32_t kDigits>
void multiply_group(const Product<kDigits>& product, Totals& totals) {
  constexpr int32_t kNextBytes = Product<kDigits>::kNextBytes;
  const WeightTile* weights = product.weights;
  const TokenTile<kDigits>* tokens = product.tokens;
  Sums sums;
  __m512 registers[kTileTokens];
#pragma GCC unroll 16
  for (int32_t t = 0; t < kTileTokens; ++t) {
    registers[t] = totals.tokens[t];
  }
  next_products<Block, kDigits, true>(weights[0], tokens[0], sums);
  prefetch(product.next, kNextBytes);
  int32_t b = 1;
  for (; b < product.num_blocks; ++b) {
    next_products<Block, kDigits, false>(weights[b], tokens[b], sums);
    add_block<Block, kDigits>(sums, weights[b - 1], tokens[b - 1], registers);
    prefetch(product.next + ptrdiff_t{b} * kNextBytes, kNextBytes);
  }
  finish_products<Block, kDigits>(sums);
  add_block<Block, kDigits>(sums, weights[b - 1], tokens[b - 1], registers);
#pragma GCC unroll 16
  for (int32_t t = 0; t < kTileTokens; ++t) {
    totals.tokens[t] = registers[t];
  }
}

// Up to kChunkTiles tiles of rows: what of the task a thread works on at a time.
struct Rows {
  int32_t first, count;

  int32_t num_tiles() const { return (count + kPanelRows - 1) / kPanelRows; }
  int32_t rows_of(int32_t tile) const { return smaller(kPanelRows, count - tile * kPanelRows); }
};

using Chunk = WeightTile[kChunkTiles][kChunkBlocks];

template <typename Block>
void fill_chunk(const MultiplyArgs& args, const Rows& rows, int32_t first_block, int32_t num_blocks, Chunk& chunk) {
  constexpr ptrdiff_t kBlockBytes = sizeof(Block);
  constexpr ptrdiff_t kGroupBytes = kPanelRows * kBlockBytes;  // a block of all rows of a tile
  const ptrdiff_t blocks_per_row = args.columns / kRun;
  const ptrdiff_t row_bytes = blocks_per_row * kBlockBytes;
  const bool has_next = rows.first + rows.count < args.row_end;
  for (int32_t i = 0; i < rows.num_tiles(); ++i) {
    const __m512i offsets = row_offsets(row_bytes, rows.rows_of(i));
    const std::byte* tile = args.weight + ptrdiff_t{rows.first + i * kPanelRows} * row_bytes;
    const std::byte* next = tile + kChunkTiles * kPanelRows * row_bytes;
    for (int32_t b = first_block; b < first_block + num_blocks; ++b) {
      if (has_next) {
        prefetch(next + b * kGroupBytes, static_cast<int32_t>(kGroupBytes));
      }
      fill_tile<Block>(tile + b * kBlockBytes, row_bytes, rows.rows_of(i), offsets, chunk[i][b - first_block]);
    }
  }
}

// Rows of up to kChunkTiles tiles, tokens of up to kPassGroups groups from first_token on.
template <typename Block, int32_t kDigits>
void multiply_pass(const MultiplyArgs& args, const Rows& rows, int32_t first_token) {
  const int32_t num_blocks = args.columns / kRun;
  const int32_t num_tokens = smaller(kPassGroups * kTileTokens, args.num_tokens - first_token);
  const int32_t num_groups = (num_tokens + kTileTokens - 1) / kTileTokens;
  const auto* tokens =
      reinterpret_cast<const TokenTile<kDigits>*>(args.packed) + ptrdiff_t{first_token / kTileTokens} * num_blocks;
  Chunk chunk;
  Totals totals[kPassGroups][kChunkTiles];
  for (int32_t g = 0; g < num_groups; ++g) {
    for (int32_t i = 0; i < rows.num_tiles(); ++i) {
      totals[g][i] = {};
    }
  }
  for (int32_t b = 0; b < num_blocks; b += kChunkBlocks) {
    const int32_t count = smaller(kChunkBlocks, num_blocks - b);
    fill_chunk<Block>(args, rows, b, count, chunk);
    for (int32_t g = 0; g < num_groups; ++g) {
      const auto* group = tokens + ptrdiff_t{g} * num_blocks + b;
      for (int32_t i = 0; i < rows.num_tiles(); ++i) {
        const auto* next = reinterpret_cast<const std::byte*>(group + num_blocks) +
                           ptrdiff_t{i} * count * Product<kDigits>::kNextBytes;
        multiply_group<Block, kDigits>({chunk[i], group, next, count}, totals[g][i]);
      }
    }
  }
  for (int32_t t = 0; t < num_tokens; ++t) {
    float* out = args.out + (first_token + t) * args.out_stride + rows.first;
    for (int32_t i = 0; i < rows.num_tiles(); ++i) {
      const auto mask = static_cast<__mmask16>((1U << rows.rows_of(i)) - 1U);
      _mm512_mask_storeu_ps(out + i * kPanelRows, mask, totals[t / kTileTokens][i].tokens[t % kTileTokens]);
    }
  }
}

template <typename Block, int32_t kDigits>
const MatmulKernel& few_tokens_kernel() {
  if constexpr (Block::kHasBias) {
    return kDigits == 2 ? kMatmulAffine4Vnni16 : kMatmulAffine4Vnni24;
  } else {
    return kDigits == 2 ? kMatmulQ8Vnni16 : kMatmulQ8Vnni24;
  }
}

template <typename Block, int32_t kDigits>
void multiply(const MultiplyArgs& args) {
  if (args.num_tokens < kLeastTokens) {
    few_tokens_kernel<Block, kDigits>().multiply(args);
    return;
  }
  configure_whole_tiles();
  constexpr int32_t kRows = kChunkTiles * kPanelRows;
  for (int32_t row = args.row_begin; row < args.row_end; row += kRows) {
    for (int32_t t = 0; t < args.num_tokens; t += kPassGroups * kTileTokens) {
      multiply_pass<Block, kDigits>(args, {row, smaller(kRows, args.row_end - row)}, t);
    }
  }
  tile_release();
}

template <int32_t kDigits>
size_t packed_bytes(int32_t num_tokens, int32_t columns) {
  if (num_tokens < kLeastTokens) {
    return fixed_bytes<kDigits>(num_tokens, columns);
  }
  const auto groups = static_cast<size_t>((num_tokens + kTileTokens - 1) / kTileTokens);
  return groups * static_cast<size_t>(columns / kRun) * sizeof(TokenTile<kDigits>);
}

// The lowest eight bits as a signed digit; what is left is a multiple of 256.
KIPP_INLINE __m512i last_digit(__m512i integers) {
  return _mm512_srai_epi32(_mm512_slli_epi32(integers, 24), 24);
}

KIPP_INLINE void store_digits(__m512i low, __m512i high, uint16_t* out) {
  const __m512bh digits = _mm512_cvtne2ps_pbh(_mm512_cvtepi32_ps(high), _mm512_cvtepi32_ps(low));
  __builtin_memcpy(out, &digits, sizeof digits);
}

// What fix_run() computes, as token t of a tile.
template <int32_t kDigits>
void pack_run(const float* x, int32_t t, TokenTile<kDigits>& tile) {
  const __m512 low = _mm512_loadu_ps(x);
  const __m512 high = _mm512_loadu_ps(x + kLanes);
  const __m512 zeros = _mm512_mul_ps(_mm512_add_ps(low, high), _mm512_setzero_ps());
  const bool finite = _mm512_cmp_ps_mask(zeros, zeros, _CMP_UNORD_Q) == 0;
  const float largest = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(low), _mm512_abs_ps(high)));
  const int32_t exponent = finite ? step_exponent<kDigits>(largest) : 0;
  const __m512 inverse = _mm512_set1_ps(exact_power(-exponent));
  const auto kept = static_cast<__mmask16>(finite ? 0xFFFF : 0);
  __m512i integers[2] = {_mm512_maskz_cvtps_epi32(kept, _mm512_mul_ps(low, inverse)),
                         _mm512_maskz_cvtps_epi32(kept, _mm512_mul_ps(high, inverse))};
  const int32_t sum = _mm512_reduce_add_epi32(_mm512_add_epi32(integers[0], integers[1]));
  tile.steps[t] = finite ? exact_power(exponent) : __builtin_nanf("");
  tile.sums[t] = static_cast<float>(sum) * tile.steps[t];
  for (int32_t digit = kDigits - 1; digit > 0; --digit) {
    const __m512i last[2] = {last_digit(integers[0]), last_digit(integers[1])};
    store_digits(last[0], last[1], tile.digits[digit][t]);
    for (int32_t half = 0; half < 2; ++half) {
      integers[half] = _mm512_sub_epi32(integers[half], last[half]);
      if (digit > 1) {  // the first digit stays times 256
        integers[half] = _mm512_srai_epi32(integers[half], 8);
      }
    }
  }
  store_digits(integers[0], integers[1], tile.digits[0][t]);
}

// A place without a token: its results go nowhere, but may not be slow.
template <int32_t kDigits>
void clear_run(int32_t t, TokenTile<kDigits>& tile) {
  for (auto& digit : tile.digits) {
    _mm512_storeu_si512(digit[t], _mm512_setzero_si512());
  }
  tile.steps[t] = 0.0F;
  tile.sums[t] = 0.0F;
}

template <int32_t kDigits>
void pack(const PackArgs& args, int32_t token_begin, int32_t token_end) {
  if (args.num_tokens < kLeastTokens) {
    pack_fixed<kDigits>(args, token_begin, token_end);
    return;
  }
  const int32_t num_blocks = args.columns / kRun;
  for (int32_t first = token_begin; first < token_end; first += kTileTokens) {
    auto* tiles = reinterpret_cast<TokenTile<kDigits>*>(args.out) + ptrdiff_t{first / kTileTokens} * num_blocks;
    for (int32_t t = 0; t < kTileTokens; ++t) {
      const float* x = args.x + ptrdiff_t{first + t} * args.columns;
      for (int32_t b = 0; b < num_blocks; ++b) {
        if (first + t < args.num_tokens) {
          pack_run<kDigits>(x + ptrdiff_t{b} * kRun, t, tiles[b]);
        } else {
          clear_run<kDigits>(t, tiles[b]);
        }
      }
    }
  }
}

template <typename Block, int32_t kDigits>
constexpr MatmulKernel kernel(const char* name) {
  return {name, kPanelRows, kTileTokens, packed_bytes<kDigits>, pack<kDigits>, multiply<Block, kDigits>};
}

}  // namespace

const MatmulKernel kMatmulQ8Amx16 = kernel<Q8Block, 2>("matmul_q8_0_amx_int16");
const MatmulKernel kMatmulQ8Amx24 = kernel<Q8Block, 3>("matmul_q8_0_amx_int24");
const MatmulKernel kMatmulAffine4Amx16 = kernel<Affine4Block, 2>("matmul_affine4_gs32_amx_int16");
const MatmulKernel kMatmulAffine4Amx24 = kernel<Affine4Block, 3>("matmul_affine4_gs32_amx_int24");

}  // namespace kipp::cpu::KIPP_CPU_LEVEL
