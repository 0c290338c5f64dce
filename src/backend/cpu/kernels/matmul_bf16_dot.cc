// BF16 weights times activations rounded once to BF16, by vdpbf16ps: for each element 16 lanes, each of which adds the
// products of two neighbouring columns in every 32, and a fixed tree.
#include "backend/cpu/kernels/level.h"
#include "backend/cpu/kernels/simd.h"

namespace kipp::cpu::KIPP_CPU_LEVEL {
namespace {

constexpr int32_t kRowTile = 4;
constexpr int32_t kTokenTile = 6;  // 24 of 32 registers are sums
constexpr int32_t kPairs = 2 * kLanes;

KIPP_INLINE __m512bh load_pairs(const uint16_t* p) {
  const __m512i bits = _mm512_loadu_si512(p);
  __m512bh pairs;
  __builtin_memcpy(&pairs, &bits, sizeof pairs);
  return pairs;
}
KIPP_INLINE __m512bh load_some_pairs(const uint16_t* p, int32_t count) {
  const __m512i bits = _mm512_maskz_loadu_epi16((1U << count) - 1U, p);
  __m512bh pairs;
  __builtin_memcpy(&pairs, &bits, sizeof pairs);
  return pairs;
}

struct Tile {
  const uint16_t* weight;  // [rows][columns]
  const uint16_t* x;       // [tokens][columns]
  float* out;
  ptrdiff_t out_stride;
  int32_t columns;
};

template <int32_t kRows, int32_t kTokens>
void multiply_tile(const Tile& tile) {
  const ptrdiff_t columns = tile.columns;
  __m512 sums[size_t{kRows}][size_t{kTokens}];
  for (int32_t r = 0; r < kRows; ++r) {
    for (int32_t t = 0; t < kTokens; ++t) {
      sums[r][t] = _mm512_setzero_ps();
    }
  }
  const auto add_pairs = [&](auto&& load_from) KIPP_INLINE_LAMBDA {
    __m512bh weights[size_t{kRows}];
    for (int32_t r = 0; r < kRows; ++r) {
      weights[r] = load_from(tile.weight + r * columns);
    }
    for (int32_t t = 0; t < kTokens; ++t) {
      const __m512bh x = load_from(tile.x + t * columns);
      for (int32_t r = 0; r < kRows; ++r) {
        sums[r][t] = _mm512_dpbf16_ps(sums[r][t], weights[r], x);
      }
    }
  };
  int32_t c = 0;
  for (; c + kPairs <= tile.columns; c += kPairs) {
    add_pairs([c](const uint16_t* row) KIPP_INLINE_LAMBDA { return load_pairs(row + c); });
  }
  if (const int32_t rest = tile.columns - c; rest > 0) {
    add_pairs([c, rest](const uint16_t* row) KIPP_INLINE_LAMBDA { return load_some_pairs(row + c, rest); });
  }
  for (int32_t t = 0; t < kTokens; ++t) {
    for (int32_t r = 0; r < kRows; ++r) {
      tile.out[t * tile.out_stride + r] = total({sums[r][t]});
    }
  }
}

template <int32_t kRows>
void multiply_tokens(const Tile& tile, int32_t num_tokens) {
  switch (num_tokens) {
    case 1: return multiply_tile<kRows, 1>(tile);
    case 2: return multiply_tile<kRows, 2>(tile);
    case 3: return multiply_tile<kRows, 3>(tile);
    case 4: return multiply_tile<kRows, 4>(tile);
    case 5: return multiply_tile<kRows, 5>(tile);
    default: return multiply_tile<kRows, 6>(tile);
  }
}

void multiply(const MultiplyArgs& args) {
  const auto* weight = reinterpret_cast<const uint16_t*>(args.weight);
  const auto* packed = reinterpret_cast<const uint16_t*>(args.packed);
  for (int32_t t = 0; t < args.num_tokens; t += kTokenTile) {
    const int32_t num_tokens = args.num_tokens - t < kTokenTile ? args.num_tokens - t : kTokenTile;
    Tile tile{nullptr, packed + ptrdiff_t{t} * args.columns, nullptr, args.out_stride, args.columns};
    int32_t r = args.row_begin;
    for (; r + kRowTile <= args.row_end; r += kRowTile) {
      tile.weight = weight + ptrdiff_t{r} * args.columns;
      tile.out = args.out + t * args.out_stride + r;
      multiply_tokens<kRowTile>(tile, num_tokens);
    }
    for (; r < args.row_end; ++r) {
      tile.weight = weight + ptrdiff_t{r} * args.columns;
      tile.out = args.out + t * args.out_stride + r;
      multiply_tokens<1>(tile, num_tokens);
    }
  }
}

size_t packed_bytes(int32_t num_tokens, int32_t columns) {
  return static_cast<size_t>(num_tokens) * static_cast<size_t>(columns) * sizeof(uint16_t);
}

void pack(const PackArgs& args, int32_t token_begin, int32_t token_end) {
  const ptrdiff_t begin = ptrdiff_t{token_begin} * args.columns;
  const ptrdiff_t end = ptrdiff_t{token_end} * args.columns;
  auto* out = reinterpret_cast<uint16_t*>(args.out);
  ptrdiff_t i = begin;
  for (; i + kLanes <= end; i += kLanes) {
    const __m256bh rounded = _mm512_cvtneps_pbh(_mm512_loadu_ps(args.x + i));
    __builtin_memcpy(out + i, &rounded, sizeof rounded);
  }
  if (i < end) {
    const auto rest = static_cast<int32_t>(end - i);
    const __m256bh rounded = _mm512_cvtneps_pbh(load_some(args.x + i, rest).v);
    __builtin_memcpy(out + i, &rounded, static_cast<size_t>(rest) * sizeof(uint16_t));
  }
}

}  // namespace

const MatmulKernel kMatmulBf16Dot = {"matmul_bf16_dot", kRowTile, 1, packed_bytes, pack, multiply};

}  // namespace kipp::cpu::KIPP_CPU_LEVEL
