// BF16 weights times activations in AMX tiles. Weights are the left operand, so that a tile is sixteen rows as they lie
// in the file; activations are packed as right operands, pairs of columns interleaved: each is the sum of two BF16
// numbers, and so are two operands for every 32 columns. Each element is one chain of product-sums over the columns in
// order, a run's first terms before its second ones, whatever the number of tokens.
#include "backend/cpu/kernels/bf16_terms.h"
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
constexpr int32_t kTerms = 2;        // right operands of a group for each 32 columns
constexpr int32_t kManyGroups = 3;   // from here on a copy of the weights pays

// Tiles 0-3 are sums, 4 and 5 right operands (of two groups, or both terms of one), 6 and 7 weights.
struct Shape {
  int32_t rows = 0;                 // of a weight tile
  int32_t tokens[kMaxGroups] = {};  // of the groups; 0: there is no second one
  bool operator==(const Shape&) const = default;
};
void configure(const Shape& shape) {
  TileConfig config;
  const int32_t second = shape.tokens[1] > 0 ? shape.tokens[1] : shape.tokens[0];
  config.set(4, kTileRows, 4 * shape.tokens[0]);
  config.set(5, kTileRows, 4 * second);
  config.set(6, shape.rows, 4 * kTileRows);
  config.set(7, shape.rows, 4 * kTileRows);
  for (int32_t sum = 0; sum < 4; ++sum) {
    // One group: all four sums are its. Two: sums 0 and 2 are the first group's, 1 and 3 the second's.
    config.set(sum, shape.rows, 4 * (sum % 2 == 0 ? shape.tokens[0] : second));
  }
  config.load();
}

// Up to sixteen tokens that share right operands, and where those lie:
// [ceil(columns / 32)][kTerms][16 pairs][tokens][2].
struct Group {
  const std::byte* packed = nullptr;
  int32_t first_token = 0;
  int32_t num_tokens = 0;

  ptrdiff_t row_bytes() const { return ptrdiff_t{num_tokens} * 4; }  // of an operand, and of sums
  ptrdiff_t term_bytes() const { return kTileRows * row_bytes(); }
  const std::byte* step(int32_t k) const { return packed + k * kTerms * term_bytes(); }
};

Group group_at(const MultiplyArgs& args, int32_t index) {
  const int32_t first = index * kTileTokens;
  const int32_t tokens = smaller(kTileTokens, args.num_tokens - first);
  const ptrdiff_t steps = (args.columns + kTileColumns - 1) / kTileColumns;
  const ptrdiff_t bytes_per_token = steps * kTileRows * 4 * kTerms;
  return {args.packed + first * bytes_per_token, first, tokens};
}

// Sixteen rows and one group of sums as the tile was stored, [rows][tokens], to where they belong.
void store_sums(const MultiplyArgs& args, const float* sums, const Group& group, int32_t row, int32_t num_rows) {
  float* out = args.out + group.first_token * args.out_stride + row;
  if (group.num_tokens == kTileTokens && num_rows == kTileRows) {
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
      out[t * args.out_stride + r] = sums[r * group.num_tokens + t];
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
void store_tiles(const MultiplyArgs& args, const Group& group, int32_t row, int32_t num_tiles, int32_t num_rows) {
  alignas(64) float sums[kTileRows * kTileTokens];
  const ptrdiff_t sum_stride = group.row_bytes();
  tile_store<0>(sums, sum_stride);
  store_sums(args, sums, group, row, num_rows);
  if (num_tiles > 1) {
    tile_store<1>(sums, sum_stride);
    store_sums(args, sums, group, row + kTileRows, num_rows);
  }
  if (num_tiles > 2) {
    tile_store<2>(sums, sum_stride);
    store_sums(args, sums, group, row + 2 * kTileRows, num_rows);
  }
  if (num_tiles > 3) {
    tile_store<3>(sums, sum_stride);
    store_sums(args, sums, group, row + 3 * kTileRows, num_rows);
  }
}

// Up to four tiles of weights, one group.
void multiply_rows(const MultiplyArgs& args, const Group& group, int32_t row, int32_t num_tiles, int32_t num_rows) {
  alignas(64) uint16_t copy[kTileRows * kTileColumns];
  const ptrdiff_t stride = ptrdiff_t{args.columns} * 2;
  const ptrdiff_t packed_stride = group.row_bytes();
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
    tile_load<5>(group.step(k) + group.term_bytes(), packed_stride);
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
    tile_multiply<0, 6, 5>();
    if (num_tiles > 1) {
      tile_load<7>(load_weights(1), weight_stride);
      tile_multiply<1, 7, 4>();
      tile_multiply<1, 7, 5>();
    }
    if (num_tiles > 2) {
      tile_load<6>(load_weights(2), weight_stride);
      tile_multiply<2, 6, 4>();
      tile_multiply<2, 6, 5>();
    }
    if (num_tiles > 3) {
      tile_load<7>(load_weights(3), weight_stride);
      tile_multiply<3, 7, 4>();
      tile_multiply<3, 7, 5>();
    }
  }
  store_tiles(args, group, row, num_tiles, num_rows);
}

// Many tokens. A panel of weights is copied into tiles once and then used for a block of tokens; two of its tiles and
// two groups at a time, so that each loaded tile is used twice. A panel is short in columns: it, the activations of its
// columns and the sums, which wait in memory for the next columns, stay in the L2 cache.
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
  const Group& one = groups[0];
  const Group& other = groups[kGroups - 1];
  const ptrdiff_t first_stride = one.row_bytes();
  const ptrdiff_t second_stride = other.row_bytes();
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
  for (int32_t k = 0; k < part.num_steps; ++k) {
    const std::byte* first = one.step(part.step + k);
    const std::byte* second = other.step(part.step + k);
    tile_prefetch(panel.tiles[k + 1], sizeof panel.tiles[0]);
    tile_load<6>(panel.tiles[k][0], kTileColumns * 2);
    tile_load<7>(panel.tiles[k][1], kTileColumns * 2);
    for (int32_t term = 0; term < kTerms; ++term) {
      tile_load<4>(first + term * one.term_bytes(), first_stride);
      tile_multiply<0, 6, 4>();
      tile_prefetch(first + (kTerms + term) * one.term_bytes(), one.term_bytes());
      if constexpr (kGroups == 2) {
        tile_load<5>(second + term * other.term_bytes(), second_stride);
        tile_multiply<1, 6, 5>();
        tile_prefetch(second + (kTerms + term) * other.term_bytes(), other.term_bytes());
      }
      tile_multiply<2, 7, 4>();
      if constexpr (kGroups == 2) {
        tile_multiply<3, 7, 5>();
      }
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
void prefetch_out(const MultiplyArgs& args, const Group& group, const PanelPart& part) {
  const float* out = args.out + group.first_token * args.out_stride + part.row;
  for (int32_t t = 0; t < group.num_tokens; ++t) {
    __builtin_prefetch(out + t * args.out_stride, 1);
    __builtin_prefetch(out + t * args.out_stride + kTileRows, 1);
  }
}

void store_panel(const MultiplyArgs& args, const Group& group, const PanelPart& part, const TileSums (&sums)[2]) {
  store_sums(args, sums[0], group, part.row, smaller(kTileRows, part.num_rows));
  if (part.num_rows > kTileRows) {
    store_sums(args, sums[1], group, part.row + kTileRows, part.num_rows - kTileRows);
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
        groups[j] = group_at(args, block.first_group + g + j);
        if (last) {
          prefetch_out(args, groups[j], part);
        }
      }
      if (i + 1 < block.num_parts()) {
        prefetch_share(args, block.part(i + 1), g / kMaxGroups, (block.num_groups + kMaxGroups - 1) / kMaxGroups);
      }
      const Shape shape = {.rows = kTileRows, .tokens = {groups[0].num_tokens, groups[1].num_tokens}};
      if (shape != configured) {  // rare: it takes as long as twenty products
        configure(shape);
        configured = shape;
      }
      TileSums(*kept)[2] = &sums.tiles[i % block.num_panels()][g];
      (num_groups == 2 ? add_panel<2> : add_panel<1>)(panel, part, groups,
                                                      {part.step == 0 ? nullptr : kept, last ? done : kept});
      for (int32_t j = 0; last && j < num_groups; ++j) {
        store_panel(args, groups[j], part, done[j]);
      }
    }
  }
}

void multiply_blocks(const MultiplyArgs& args, int32_t num_groups) {
  constexpr int32_t kRows = kBlockPanels * kPanelRows;
  const int32_t num_steps = (args.columns + kTileColumns - 1) / kTileColumns;
  for (int32_t g = 0; g < num_groups; g += kBlockGroups) {
    for (int32_t row = args.row_begin; row < args.row_end; row += kRows) {
      multiply_block(args,
                     {row, smaller(kRows, args.row_end - row), g, smaller(kBlockGroups, num_groups - g), num_steps});
    }
  }
}

void multiply_group(const MultiplyArgs& args, const Group& group, int32_t row) {
  configure({.rows = kTileRows, .tokens = {group.num_tokens, 0}});
  // A few tokens wait for memory, not for the chain of sums: then one tile of rows at a time asks for the next.
  const int32_t tiles = args.num_tokens <= kTileTokens ? 1 : kMaxRowTiles;
  if (tiles == 1) {
    const ptrdiff_t row_bytes = ptrdiff_t{args.columns} * 2;
    prefetch(args.weight + row * row_bytes, smaller(kTileRows, args.row_end - row) * static_cast<int32_t>(row_bytes));
  }
  for (; row + kTileRows <= args.row_end; row += tiles * kTileRows) {
    multiply_rows(args, group, row, smaller(tiles, (args.row_end - row) / kTileRows), kTileRows);
  }
  row = args.row_begin + (args.row_end - args.row_begin) / kTileRows * kTileRows;
  if (const int32_t rest = args.row_end - row; rest > 0) {
    configure({.rows = rest, .tokens = {group.num_tokens, 0}});
    multiply_rows(args, group, row, 1, rest);
  }
}

void multiply(const MultiplyArgs& args) {
  const int32_t num_groups = (args.num_tokens + kTileTokens - 1) / kTileTokens;
  if (num_groups >= kManyGroups) {
    multiply_blocks(args, num_groups);
  } else {
    for (int32_t g = 0; g < num_groups; ++g) {
      multiply_group(args, group_at(args, g), args.row_begin);
    }
  }
  tile_release();
}

size_t packed_bytes(int32_t num_tokens, int32_t columns) {
  const auto steps = static_cast<size_t>((columns + kTileColumns - 1) / kTileColumns);
  return steps * kTileRows * 4 * kTerms * static_cast<size_t>(num_tokens);
}

// One step of a group: each term of a token is a row of pairs, which the turn makes a column.
KIPP_INLINE void pack_step(const float* x, ptrdiff_t columns, int32_t num_tokens, int32_t count, uint32_t* out) {
  __m512i words[kTerms][kTileTokens] = {};
  for (int32_t t = 0; t < num_tokens; ++t) {
    const float* row = x + t * columns;
    __m512 low = count >= kLanes ? _mm512_loadu_ps(row) : load_some(row, count).v;
    __m512 high = count == kTileColumns ? _mm512_loadu_ps(row + kLanes)
                                        : load_some(row + kLanes, count > kLanes ? count - kLanes : 0).v;
    for (auto& term : words) {
      term[t] = next_term(low, high);
    }
  }
  const auto present = static_cast<__mmask16>((1U << num_tokens) - 1U);
  for (auto& term : words) {
    if (num_tokens == 1) {  // of every decoded token: nothing to turn
      _mm512_storeu_si512(out, term[0]);
      out += kTileRows;
      continue;
    }
    transpose(term);
    for (const __m512i& pair : term) {
      _mm512_mask_storeu_epi32(out, present, pair);
      out += num_tokens;
    }
  }
}

void pack(const PackArgs& args, int32_t token_begin, int32_t token_end) {
  for (int32_t first = token_begin; first < token_end; first += kTileTokens) {
    const int32_t tokens = smaller(kTileTokens, args.num_tokens - first);
    const float* x = args.x + ptrdiff_t{first} * args.columns;
    auto* out = reinterpret_cast<uint32_t*>(args.out + packed_bytes(first, args.columns));
    for (int32_t c = 0; c < args.columns; c += kTileColumns) {
      pack_step(x + c, args.columns, tokens, smaller(kTileColumns, args.columns - c), out);
      out += kTileRows * tokens * kTerms;
    }
  }
}

}  // namespace

const MatmulKernel kMatmulBf16Amx = {"matmul_bf16_amx", kTileRows, kTileTokens, packed_bytes, pack, multiply};

}  // namespace kipp::cpu::KIPP_CPU_LEVEL
