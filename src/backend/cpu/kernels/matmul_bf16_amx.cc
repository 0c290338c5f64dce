// BF16 weights times BF16 activations in AMX tiles. Weights are the left operand, so that a tile is sixteen rows as
// they lie in the file; activations are packed as the right operand, pairs of columns interleaved. Each element is one
// chain of product-sums over the columns in order, whatever the number of tokens. At high precision an activation is
// the exact sum of three BF16 numbers, which take three columns of the right operand.
#include "backend/cpu/kernels/level.h"
#include "backend/cpu/kernels/tiles.h"
#include "backend/cpu/kernels/transpose.h"

namespace kipp::cpu::KIPP_CPU_LEVEL {
namespace {

constexpr int32_t kTileRows = 16;     // weight rows of a tile
constexpr int32_t kTileColumns = 32;  // matrix columns of a tile: 64 bytes of BF16
constexpr int32_t kTileBytes = 1024;
constexpr int32_t kTileTokens = 16;  // columns of the right operand of a tile
constexpr int32_t kMaxGroups = 2;    // right operands that a tile of weights is used for while loaded
constexpr int32_t kMaxRowTiles = 4;  // tiles of weights in flight for one right operand
constexpr int32_t kManyGroups = 3;   // from here on a copy of the weights pays

// One token's activation takes kTerms columns; a group of tokens shares one right operand.
template <int32_t kTerms>
constexpr int32_t kGroupTokens = kTileTokens / kTerms;

KIPP_INLINE int32_t smaller(int32_t a, int32_t b) {
  return a < b ? a : b;
}

// Tiles 0-3 are sums, 4 and 5 right operands, 6 and 7 weights.
struct Shape {
  int32_t rows = 0;                 // of a weight tile
  int32_t tokens[kMaxGroups] = {};  // columns of the right operands
  bool operator==(const Shape&) const = default;
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
  tile_store<0>(sums, sum_stride);
  store_sums<kTerms>(args, sums, group, row, num_rows);
  if (num_tiles > 1) {
    tile_store<1>(sums, sum_stride);
    store_sums<kTerms>(args, sums, group, row + kTileRows, num_rows);
  }
  if (num_tiles > 2) {
    tile_store<2>(sums, sum_stride);
    store_sums<kTerms>(args, sums, group, row + 2 * kTileRows, num_rows);
  }
  if (num_tiles > 3) {
    tile_store<3>(sums, sum_stride);
    store_sums<kTerms>(args, sums, group, row + 3 * kTileRows, num_rows);
  }
}

// Up to four tiles of weights, one group.
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
  tile_zero<0>();
  tile_zero<1>();
  tile_zero<2>();
  tile_zero<3>();
  for (int32_t k = 0; k < steps; ++k) {
    tile_load<4>(group.step(k), packed_stride);
    prefetch(next + ptrdiff_t{k} * num_tiles * kTileBytes, ahead);
    const auto load_weights = [&](int32_t i) KIPP_INLINE_LAMBDA -> const void* {
      if (k == whole) {
        weights[i].copy_rest(k, copy);
        return copy;
      }
      return weights[i].step(k);
    };
    const ptrdiff_t weight_stride = k == whole ? kTileColumns * 2 : stride;
    tile_load<6>(load_weights(0), weight_stride);
    tile_multiply<0, 6, 4>();
    if (num_tiles > 1) {
      tile_load<7>(load_weights(1), weight_stride);
      tile_multiply<1, 7, 4>();
    }
    if (num_tiles > 2) {
      tile_load<6>(load_weights(2), weight_stride);
      tile_multiply<2, 6, 4>();
    }
    if (num_tiles > 3) {
      tile_load<7>(load_weights(3), weight_stride);
      tile_multiply<3, 7, 4>();
    }
  }
  store_tiles<kTerms>(args, group, row, num_tiles, num_rows);
}

// Many tokens. A panel of weights is copied into tiles once and then used for a block of tokens; two of its tiles and
// two groups at a time, so that each loaded tile is used twice. Panels are short in columns: one stays in the L1 cache,
// the activations of its columns in the L2 cache, and the sums wait in memory for the next columns.
constexpr int32_t kPanelRows = 2 * kTileRows;
constexpr int32_t kPanelSteps = 32;   // 32 rows of 1,024 columns: 64 KiB
constexpr int32_t kBlockPanels = 4;   // whose sums are kept at once
constexpr int32_t kBlockGroups = 32;  // likewise

struct alignas(64) Panel {
  uint16_t tiles[kPanelSteps][2][kTileRows * kTileColumns];
};
using TileSums = float[kTileRows * kTileTokens];
struct alignas(64) Sums {
  TileSums tiles[kBlockPanels][kBlockGroups][2];
};

// What a panel holds of the matrix.
struct PanelPart {
  int32_t row, num_rows;
  int32_t step, num_steps;
};

const uint16_t* weights_at(const MultiplyArgs& args, int32_t row, int32_t step) {
  return reinterpret_cast<const uint16_t*>(args.weight) + ptrdiff_t{row} * args.columns + step * kTileColumns;
}

// Thirty-two columns of a row; zeros beyond `count`.
KIPP_INLINE __m512i load_columns(const uint16_t* weights, int32_t count) {
  if (count >= kTileColumns) {
    return _mm512_loadu_si512(weights);
  }
  return _mm512_maskz_loadu_epi16(static_cast<__mmask32>((uint64_t{1} << (count > 0 ? count : 0)) - 1), weights);
}

// Zeros beyond the matrix. A few tiles at a time: their rows then lie in different sets of the L1 cache.
void fill_panel(const MultiplyArgs& args, const PanelPart& part, Panel& panel) {
  constexpr int32_t kTogether = 4;
  for (int32_t k = 0; k < part.num_steps; k += kTogether) {
    const int32_t num_tiles = smaller(kTogether, part.num_steps - k);
    for (int32_t r = 0; r < kPanelRows; ++r) {
      const uint16_t* weights = weights_at(args, part.row + r, part.step + k);
      const int32_t columns = r < part.num_rows ? args.columns - (part.step + k) * kTileColumns : 0;
      for (int32_t j = 0; j < num_tiles; ++j) {
        _mm512_store_si512(panel.tiles[k + j][r / kTileRows] + r % kTileRows * kTileColumns,
                           load_columns(weights + j * kTileColumns, columns - j * kTileColumns));
      }
    }
  }
}

// Share `index` of `count` of a part's rows.
void prefetch_share(const MultiplyArgs& args, const PanelPart& part, int32_t index, int32_t count) {
  for (int32_t r = part.num_rows * index / count; r < part.num_rows * (index + 1) / count; ++r) {
    prefetch(weights_at(args, part.row + r, part.step), part.num_steps * kTileColumns * 2);
  }
}

// Where add_panel goes on from, null for the first columns, and where it leaves the sums: [group][tile of rows].
struct PanelSums {
  const TileSums (*from)[2];
  TileSums (*to)[2];
};

// A panel times one or two groups.
template <int32_t kGroups>
void add_panel(const Panel& panel, const PanelPart& part, const Group* groups, const PanelSums& sums) {
  const ptrdiff_t first_stride = ptrdiff_t{groups[0].width} * 4;
  const ptrdiff_t second_stride = ptrdiff_t{groups[kGroups - 1].width} * 4;
  if (sums.from == nullptr) {
    tile_zero<0>();
    tile_zero<1>();
    tile_zero<2>();
    tile_zero<3>();
  } else {
    tile_load<0>(sums.from[0][0], first_stride);
    tile_load<2>(sums.from[0][1], first_stride);
    if constexpr (kGroups == 2) {
      tile_load<1>(sums.from[1][0], second_stride);
      tile_load<3>(sums.from[1][1], second_stride);
    }
  }
  const std::byte* first = groups[0].step(part.step);
  const std::byte* second = groups[kGroups - 1].step(part.step);
  for (int32_t k = 0; k < part.num_steps; ++k) {
    tile_prefetch(panel.tiles[k + 1], sizeof panel.tiles[0]);
    tile_load<6>(panel.tiles[k][0], kTileColumns * 2);
    tile_load<4>(first + k * kTileRows * first_stride, first_stride);
    tile_multiply<0, 6, 4>();
    tile_prefetch(first + (k + 1) * kTileRows * first_stride, kTileRows * first_stride);
    if constexpr (kGroups == 2) {
      tile_prefetch(second + (k + 1) * kTileRows * second_stride, kTileRows * second_stride);
      tile_load<5>(second + k * kTileRows * second_stride, second_stride);
      tile_multiply<1, 6, 5>();
    }
    tile_load<7>(panel.tiles[k][1], kTileColumns * 2);
    tile_multiply<2, 7, 4>();
    if constexpr (kGroups == 2) {
      tile_multiply<3, 7, 5>();
    }
  }
  tile_store<0>(sums.to[0][0], first_stride);
  tile_store<2>(sums.to[0][1], first_stride);
  if constexpr (kGroups == 2) {
    tile_store<1>(sums.to[1][0], second_stride);
    tile_store<3>(sums.to[1][1], second_stride);
  }
}

// Where a group's sums will go: a line that a store had to wait for would hold up all behind it.
template <int32_t kTerms>
void prefetch_out(const MultiplyArgs& args, const Group& group, const PanelPart& part) {
  const float* out = args.out + group.first_token * args.out_stride + part.row;
  for (int32_t t = 0; t < group.num_tokens; ++t) {
    __builtin_prefetch(out + t * args.out_stride, 1);
    __builtin_prefetch(out + t * args.out_stride + kTileRows, 1);
  }
}

template <int32_t kTerms>
void store_panel(const MultiplyArgs& args, const Group& group, const PanelPart& part, const TileSums (&sums)[2]) {
  store_sums<kTerms>(args, sums[0], group, part.row, smaller(kTileRows, part.num_rows));
  if (part.num_rows > kTileRows) {
    store_sums<kTerms>(args, sums[1], group, part.row + kTileRows, part.num_rows - kTileRows);
  }
}

// Rows of at most kBlockPanels panels, and at most kBlockGroups groups.
struct Block {
  int32_t row, num_rows;
  int32_t first_group, num_groups;
  int32_t num_steps;  // of the matrix

  int32_t num_panels() const { return (num_rows + kPanelRows - 1) / kPanelRows; }
  int32_t num_parts() const { return (num_steps + kPanelSteps - 1) / kPanelSteps * num_panels(); }
  PanelPart part(int32_t index) const {
    const int32_t first = index % num_panels() * kPanelRows;
    const int32_t step = index / num_panels() * kPanelSteps;
    return {row + first, smaller(kPanelRows, num_rows - first), step, smaller(kPanelSteps, num_steps - step)};
  }
};

template <int32_t kTerms>
void multiply_block(const MultiplyArgs& args, const Block& block) {
  Panel panel;
  Sums sums;
  alignas(64) TileSums done[kMaxGroups][2];
  Shape configured;
  for (int32_t i = 0; i < block.num_parts(); ++i) {
    const PanelPart part = block.part(i);
    const bool last = part.step + part.num_steps == block.num_steps;
    fill_panel(args, part, panel);
    for (int32_t g = 0; g < block.num_groups; g += kMaxGroups) {
      const int32_t num_groups = smaller(kMaxGroups, block.num_groups - g);
      Group groups[kMaxGroups];
      for (int32_t j = 0; j < num_groups; ++j) {
        groups[j] = group_at<kTerms>(args, block.first_group + g + j);
        if (last) {
          prefetch_out<kTerms>(args, groups[j], part);
        }
      }
      if (i + 1 < block.num_parts()) {
        prefetch_share(args, block.part(i + 1), g / kMaxGroups, (block.num_groups + kMaxGroups - 1) / kMaxGroups);
      }
      const Shape shape = {.rows = kTileRows, .tokens = {groups[0].width, groups[1].width}};
      if (shape != configured) {  // rare: it takes as long as twenty products
        configure(shape);
        configured = shape;
      }
      TileSums(*kept)[2] = &sums.tiles[i % block.num_panels()][g];
      (num_groups == 2 ? add_panel<2> : add_panel<1>)(panel, part, groups,
                                                      {part.step == 0 ? nullptr : kept, last ? done : kept});
      for (int32_t j = 0; last && j < num_groups; ++j) {
        store_panel<kTerms>(args, groups[j], part, done[j]);
      }
    }
  }
}

template <int32_t kTerms>
void multiply_blocks(const MultiplyArgs& args, int32_t num_groups) {
  constexpr int32_t kRows = kBlockPanels * kPanelRows;
  const int32_t num_steps = (args.columns + kTileColumns - 1) / kTileColumns;
  for (int32_t g = 0; g < num_groups; g += kBlockGroups) {
    for (int32_t row = args.row_begin; row < args.row_end; row += kRows) {
      multiply_block<kTerms>(
          args, {row, smaller(kRows, args.row_end - row), g, smaller(kBlockGroups, num_groups - g), num_steps});
    }
  }
}

template <int32_t kTerms>
void multiply_group(const MultiplyArgs& args, const Group& group, int32_t row) {
  configure({.rows = kTileRows, .tokens = {group.width, 0}});
  // A few tokens wait for memory, not for the chain of sums: then one tile of rows at a time asks for the next.
  const int32_t tiles = args.num_tokens <= kGroupTokens<kTerms> ? 1 : kMaxRowTiles;
  if (tiles == 1) {
    const ptrdiff_t row_bytes = ptrdiff_t{args.columns} * 2;
    prefetch(args.weight + row * row_bytes, smaller(kTileRows, args.row_end - row) * static_cast<int32_t>(row_bytes));
  }
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
  if (num_groups >= kManyGroups) {
    multiply_blocks<kTerms>(args, num_groups);
  } else {
    for (int32_t g = 0; g < num_groups; ++g) {
      multiply_group<kTerms>(args, group_at<kTerms>(args, g), args.row_begin);
    }
  }
  tile_release();
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

// One step of a group: each term of each token is a row of pairs, which the turn makes a column.
template <int32_t kTerms>
KIPP_INLINE void pack_step(const float* x, ptrdiff_t columns, int32_t num_tokens, int32_t count, uint32_t* out) {
  __m512i words[16] = {};
  for (int32_t t = 0; t < num_tokens; ++t) {
    const float* row = x + t * columns;
    __m512 low = count >= kLanes ? _mm512_loadu_ps(row) : load_some(row, count).v;
    __m512 high = count == kTileColumns ? _mm512_loadu_ps(row + kLanes)
                                        : load_some(row + kLanes, count > kLanes ? count - kLanes : 0).v;
    for (int32_t term = 0; term < kTerms; ++term) {
      words[t * kTerms + term] = round_pairs(low, high);
    }
  }
  const int32_t width = num_tokens * kTerms;
  if (width == 1) {  // of every decoded token: nothing to turn
    _mm512_storeu_si512(out, words[0]);
    return;
  }
  transpose(words);
  const auto present = static_cast<__mmask16>((1U << width) - 1U);
  for (int32_t pair = 0; pair < kTileRows; ++pair) {
    _mm512_mask_storeu_epi32(out + pair * width, present, words[pair]);
  }
}

template <int32_t kTerms>
void pack(const PackArgs& args, int32_t token_begin, int32_t token_end) {
  for (int32_t first = token_begin; first < token_end; first += kGroupTokens<kTerms>) {
    const int32_t tokens = smaller(kGroupTokens<kTerms>, args.num_tokens - first);
    const float* x = args.x + ptrdiff_t{first} * args.columns;
    auto* out = reinterpret_cast<uint32_t*>(args.out + packed_bytes<kTerms>(first, args.columns));
    for (int32_t c = 0; c < args.columns; c += kTileColumns) {
      pack_step<kTerms>(x + c, args.columns, tokens, smaller(kTileColumns, args.columns - c), out);
      out += kTileRows * tokens * kTerms;
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
