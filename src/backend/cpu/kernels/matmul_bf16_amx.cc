// BF16 weights times BF16 activations in AMX tiles. Weights are the left operand, so that a tile is sixteen rows as
// they lie in the file; activations are packed as the right operand, pairs of columns interleaved. Each element is one
// chain of product-sums over the columns in order, whatever the number of tokens. At high precision an activation is
// the exact sum of three BF16 numbers, which take three columns of the right operand.
#include "backend/cpu/kernels/level.h"
#include "backend/cpu/kernels/tile_config.h"
#include "backend/cpu/kernels/transpose.h"

namespace kipp::cpu::KIPP_CPU_LEVEL {
namespace {

constexpr int32_t kTileRows = 16;     // weight rows of a tile
constexpr int32_t kTileColumns = 32;  // matrix columns of a tile: 64 bytes of BF16
constexpr int32_t kTileBytes = 1024;
constexpr int32_t kTileTokens = 16;  // columns of the right operand of a tile
constexpr int32_t kMaxGroups = 2;    // right operands that a tile of weights is used for while loaded
constexpr int32_t kMaxRowTiles = 4;  // tiles of weights in flight for one right operand

// One token's activation takes kTerms columns; a group of tokens shares one right operand.
template <int32_t kTerms>
constexpr int32_t kGroupTokens = kTileTokens / kTerms;

KIPP_INLINE int32_t smaller(int32_t a, int32_t b) {
  return a < b ? a : b;
}

// Tiles 0-3 are sums, 4 and 5 right operands, 6 and 7 weights.
struct Shape {
  int32_t rows;                // of a weight tile
  int32_t tokens[kMaxGroups];  // columns of the right operands
};
void configure(const Shape& shape) {
  TileConfig config;
  for (int32_t g = 0; g < kMaxGroups; ++g) {
    const int32_t tokens = shape.tokens[g] > 0 ? shape.tokens[g] : 1;
    config.set(4 + g, kTileRows, 4 * tokens);
  }
  config.set(6, shape.rows, 4 * kTileRows);
  config.set(7, shape.rows, 4 * kTileRows);
  for (int32_t sum = 0; sum < 4; ++sum) {
    // One group: all four sums are its. Two: sums 0 and 2 are the first group's, 1 and 3 the second's.
    const int32_t tokens = shape.tokens[1] > 0 ? shape.tokens[sum % 2] : shape.tokens[0];
    config.set(sum, shape.rows, 4 * tokens);
  }
  config.load();
}

// Where one group's packed activations lie: [ceil(columns / 32)][16 pairs][width][2].
struct Group {
  const std::byte* packed = nullptr;
  int32_t width = 0;  // columns of the right operand: tokens × terms
  int32_t first_token = 0;
  int32_t num_tokens = 0;

  const std::byte* step(int32_t k) const { return packed + ptrdiff_t{k} * kTileRows * 4 * width; }
};

template <int32_t kTerms>
Group group_at(const MultiplyArgs& args, int32_t index) {
  const int32_t first = index * kGroupTokens<kTerms>;
  const int32_t tokens = smaller(kGroupTokens<kTerms>, args.num_tokens - first);
  const ptrdiff_t steps = (args.columns + kTileColumns - 1) / kTileColumns;
  const ptrdiff_t bytes_per_token = steps * kTileRows * 4 * kTerms;
  return {args.packed + first * bytes_per_token, tokens * kTerms, first, tokens};
}

// Sixteen rows and one group of sums as the tile was stored, [rows][width], to where they belong.
template <int32_t kTerms>
void store_sums(const MultiplyArgs& args, const float* sums, const Group& group, int32_t row, int32_t num_rows) {
  float* out = args.out + group.first_token * args.out_stride + row;
  if (kTerms == 1 && group.width == kTileTokens && num_rows == kTileRows) {
    __m512i words[16];
    for (int32_t r = 0; r < kTileRows; ++r) {
      words[r] = _mm512_load_si512(sums + r * kTileTokens);
    }
    transpose(words);
    for (int32_t t = 0; t < kTileTokens; ++t) {
      _mm512_storeu_si512(out + t * args.out_stride, words[t]);
    }
    return;
  }
  for (int32_t t = 0; t < group.num_tokens; ++t) {
    for (int32_t r = 0; r < num_rows; ++r) {
      const float* terms = sums + r * group.width + t * kTerms;
      out[t * args.out_stride + r] = kTerms == 1 ? terms[0] : terms[0] + (terms[1] + terms[kTerms - 1]);
    }
  }
}

// The weights of one step for sixteen rows: in place, or for the last few columns a copy with zeros behind.
struct WeightRows {
  const uint16_t* first;
  ptrdiff_t columns;
  int32_t num_rows;

  const uint16_t* step(int32_t k) const { return first + k * kTileColumns; }
  void copy_rest(int32_t k, uint16_t* copy) const {
    const auto rest = static_cast<int32_t>(columns - k * kTileColumns);
    for (int32_t r = 0; r < num_rows; ++r) {
      for (int32_t c = 0; c < kTileColumns; ++c) {
        copy[r * kTileColumns + c] = c < rest ? first[r * columns + k * kTileColumns + c] : uint16_t{0};
      }
    }
  }
};

// The sums of up to four tiles of weights, one group.
template <int32_t kTerms>
void store_tiles(const MultiplyArgs& args, const Group& group, int32_t row, int32_t num_tiles, int32_t num_rows) {
  alignas(64) float sums[kTileRows * kTileTokens];
  const ptrdiff_t sum_stride = ptrdiff_t{group.width} * 4;
  _tile_stored(0, sums, sum_stride);
  store_sums<kTerms>(args, sums, group, row, num_rows);
  if (num_tiles > 1) {
    _tile_stored(1, sums, sum_stride);
    store_sums<kTerms>(args, sums, group, row + kTileRows, num_rows);
  }
  if (num_tiles > 2) {
    _tile_stored(2, sums, sum_stride);
    store_sums<kTerms>(args, sums, group, row + 2 * kTileRows, num_rows);
  }
  if (num_tiles > 3) {
    _tile_stored(3, sums, sum_stride);
    store_sums<kTerms>(args, sums, group, row + 3 * kTileRows, num_rows);
  }
}

// Up to four tiles of weights, one group. The tile numbers of the intrinsics must be literals.
template <int32_t kTerms>
void multiply_rows(const MultiplyArgs& args, const Group& group, int32_t row, int32_t num_tiles, int32_t num_rows) {
  alignas(64) uint16_t copy[kTileRows * kTileColumns];
  const ptrdiff_t stride = ptrdiff_t{args.columns} * 2;
  const ptrdiff_t packed_stride = ptrdiff_t{group.width} * 4;
  const int32_t steps = (args.columns + kTileColumns - 1) / kTileColumns;
  const int32_t whole = args.columns / kTileColumns;
  // Beyond the task's rows others are at work: what is asked for there costs bandwidth and ends in the wrong cache.
  const int32_t ahead = row + num_tiles * kTileRows < args.row_end ? num_tiles * kTileBytes : 0;
  const std::byte* next = args.weight + ptrdiff_t{row + num_tiles * kTileRows} * stride;
  WeightRows weights[kMaxRowTiles];
  for (int32_t i = 0; i < num_tiles; ++i) {
    const auto* first = reinterpret_cast<const uint16_t*>(args.weight) + ptrdiff_t{row + i * kTileRows} * args.columns;
    weights[i] = {first, args.columns, num_rows};
  }
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int32_t k = 0; k < steps; ++k) {
    _tile_loadd(4, group.step(k), packed_stride);
    prefetch(next + ptrdiff_t{k} * num_tiles * kTileBytes, ahead);
    const auto load_weights = [&](int32_t i) KIPP_INLINE_LAMBDA -> const void* {
      if (k == whole) {
        weights[i].copy_rest(k, copy);
        return copy;
      }
      return weights[i].step(k);
    };
    const ptrdiff_t weight_stride = k == whole ? kTileColumns * 2 : stride;
    _tile_loadd(6, load_weights(0), weight_stride);
    _tile_dpbf16ps(0, 6, 4);
    if (num_tiles > 1) {
      _tile_loadd(7, load_weights(1), weight_stride);
      _tile_dpbf16ps(1, 7, 4);
    }
    if (num_tiles > 2) {
      _tile_loadd(6, load_weights(2), weight_stride);
      _tile_dpbf16ps(2, 6, 4);
    }
    if (num_tiles > 3) {
      _tile_loadd(7, load_weights(3), weight_stride);
      _tile_dpbf16ps(3, 7, 4);
    }
  }
  store_tiles<kTerms>(args, group, row, num_tiles, num_rows);
}

// Two tiles of weights and two groups: each loaded tile is used twice. For columns that are whole steps.
template <int32_t kTerms>
void multiply_square(const MultiplyArgs& args, const Group (&groups)[kMaxGroups], int32_t row) {
  alignas(64) float sums[kTileRows * kTileTokens];
  const ptrdiff_t stride = ptrdiff_t{args.columns} * 2;
  const auto* first = reinterpret_cast<const uint16_t*>(args.weight) + ptrdiff_t{row} * args.columns;
  const auto* second = first + ptrdiff_t{kTileRows} * args.columns;
  const ptrdiff_t strides[] = {ptrdiff_t{groups[0].width} * 4, ptrdiff_t{groups[1].width} * 4};
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int32_t k = 0; k * kTileColumns < args.columns; ++k) {
    _tile_loadd(6, first + k * kTileColumns, stride);
    _tile_loadd(4, groups[0].step(k), strides[0]);
    _tile_dpbf16ps(0, 6, 4);
    _tile_loadd(5, groups[1].step(k), strides[1]);
    _tile_dpbf16ps(1, 6, 5);
    _tile_loadd(7, second + k * kTileColumns, stride);
    _tile_dpbf16ps(2, 7, 4);
    _tile_dpbf16ps(3, 7, 5);
  }
  _tile_stored(0, sums, strides[0]);
  store_sums<kTerms>(args, sums, groups[0], row, kTileRows);
  _tile_stored(1, sums, strides[1]);
  store_sums<kTerms>(args, sums, groups[1], row, kTileRows);
  _tile_stored(2, sums, strides[0]);
  store_sums<kTerms>(args, sums, groups[0], row + kTileRows, kTileRows);
  _tile_stored(3, sums, strides[1]);
  store_sums<kTerms>(args, sums, groups[1], row + kTileRows, kTileRows);
}

template <int32_t kTerms>
void multiply_group(const MultiplyArgs& args, const Group& group, int32_t row) {
  configure({.rows = kTileRows, .tokens = {group.width, 0}});
  // A few tokens wait for memory, not for the chain of sums: then one tile of rows at a time asks for the next.
  const int32_t tiles = args.num_tokens <= kGroupTokens<kTerms> ? 1 : kMaxRowTiles;
  for (; row + kTileRows <= args.row_end; row += tiles * kTileRows) {
    multiply_rows<kTerms>(args, group, row, smaller(tiles, (args.row_end - row) / kTileRows), kTileRows);
  }
  row = args.row_begin + (args.row_end - args.row_begin) / kTileRows * kTileRows;
  if (const int32_t rest = args.row_end - row; rest > 0) {
    configure({.rows = rest, .tokens = {group.width, 0}});
    multiply_rows<kTerms>(args, group, row, 1, rest);
  }
}

template <int32_t kTerms>
void multiply(const MultiplyArgs& args) {
  const int32_t num_groups = (args.num_tokens + kGroupTokens<kTerms> - 1) / kGroupTokens<kTerms>;
  const bool whole_steps = args.columns % kTileColumns == 0;
  int32_t g = 0;
  for (; whole_steps && g + kMaxGroups <= num_groups; g += kMaxGroups) {
    const Group groups[kMaxGroups] = {group_at<kTerms>(args, g), group_at<kTerms>(args, g + 1)};
    configure({.rows = kTileRows, .tokens = {groups[0].width, groups[1].width}});
    int32_t row = args.row_begin;
    for (; row + 2 * kTileRows <= args.row_end; row += 2 * kTileRows) {
      multiply_square<kTerms>(args, groups, row);
    }
    if (row < args.row_end) {
      MultiplyArgs rest = args;
      rest.row_begin = row;
      multiply_group<kTerms>(rest, groups[0], row);
      multiply_group<kTerms>(rest, groups[1], row);
    }
  }
  for (; g < num_groups; ++g) {
    multiply_group<kTerms>(args, group_at<kTerms>(args, g), args.row_begin);
  }
  _tile_release();
}

template <int32_t kTerms>
size_t packed_bytes(int32_t num_tokens, int32_t columns) {
  const auto steps = static_cast<size_t>((columns + kTileColumns - 1) / kTileColumns);
  return steps * kTileRows * 4 * kTerms * static_cast<size_t>(num_tokens);
}

// Sixteen pairs of neighbouring activations as pairs of BF16: the first term of each, or what it leaves.
KIPP_INLINE __m512i round_pairs(__m512& low, __m512& high) {
  const __m512bh pairs = _mm512_cvtne2ps_pbh(high, low);
  __m512i bits;
  __builtin_memcpy(&bits, &pairs, sizeof bits);
  const __m512i low_bits = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(bits));
  const __m512i high_bits = _mm512_cvtepu16_epi32(_mm512_extracti32x8_epi32(bits, 1));
  low = _mm512_sub_ps(low, _mm512_castsi512_ps(_mm512_slli_epi32(low_bits, 16)));
  high = _mm512_sub_ps(high, _mm512_castsi512_ps(_mm512_slli_epi32(high_bits, 16)));
  return bits;
}

template <int32_t kTerms>
void pack_token(const float* x, int32_t columns, int32_t width, uint32_t* out) {
  for (int32_t c = 0; c < columns; c += kTileColumns) {
    const int32_t count = smaller(kTileColumns, columns - c);
    __m512 low = count >= kLanes ? _mm512_loadu_ps(x + c) : load_some(x + c, count).v;
    __m512 high = count == kTileColumns ? _mm512_loadu_ps(x + c + kLanes)
                                        : load_some(x + c + kLanes, count > kLanes ? count - kLanes : 0).v;
    for (int32_t term = 0; term < kTerms; ++term) {
      alignas(64) uint32_t pairs[kTileRows];
      _mm512_store_si512(pairs, round_pairs(low, high));
      for (int32_t pair = 0; pair < kTileRows; ++pair) {
        out[pair * width + term] = pairs[pair];
      }
    }
    out += kTileRows * width;
  }
}

template <int32_t kTerms>
void pack(const PackArgs& args, int32_t token_begin, int32_t token_end) {
  for (int32_t first = token_begin; first < token_end; first += kGroupTokens<kTerms>) {
    const int32_t tokens = smaller(kGroupTokens<kTerms>, args.num_tokens - first);
    auto* group = reinterpret_cast<uint32_t*>(args.out + packed_bytes<kTerms>(first, args.columns));
    for (int32_t t = 0; t < tokens; ++t) {
      pack_token<kTerms>(args.x + ptrdiff_t{first + t} * args.columns, args.columns, tokens * kTerms,
                         group + t * kTerms);
    }
  }
}

template <int32_t kTerms>
constexpr MatmulKernel kernel(const char* name) {
  return {name, kTileRows, kGroupTokens<kTerms>, packed_bytes<kTerms>, pack<kTerms>, multiply<kTerms>};
}

}  // namespace

const MatmulKernel kMatmulBf16Amx = kernel<1>("matmul_bf16_amx");
const MatmulKernel kMatmulBf16AmxSplit = kernel<3>("matmul_bf16_amx_split");

}  // namespace kipp::cpu::KIPP_CPU_LEVEL
