// BF16 weights, widened, times FP32 activations: for each element 16 lanes of products over the columns in order and a
// fixed tree, the oracle's order (with fused product-sums where the instruction set has them).
#include "backend/cpu/kernels/level.h"
#include "backend/cpu/kernels/simd.h"

namespace kipp::cpu::KIPP_CPU_LEVEL {
namespace {

// Rows × tokens whose sums stay in registers: 24 of 32, 8 of 16, 8 of 16.
#if defined(__AVX512F__)
constexpr int32_t kRowTile = 4;
constexpr int32_t kTokenTile = 6;
#elif defined(__AVX2__)
constexpr int32_t kRowTile = 2;
constexpr int32_t kTokenTile = 2;
#else
constexpr int32_t kRowTile = 1;
constexpr int32_t kTokenTile = 2;
#endif

struct Tile {
  const uint16_t* weight;  // [rows][columns]
  const float* x;          // [tokens][columns]
  float* out;              // [tokens] rows of stride out_stride
  ptrdiff_t out_stride;
  int32_t columns;
  bool has_next;  // whether the task goes on with the rows behind these
};

template <int32_t kRows, int32_t kTokens>
void multiply_tile(const Tile& tile) {
  const ptrdiff_t columns = tile.columns;
  F16 sums[size_t{kRows}][size_t{kTokens}];
  for (int32_t r = 0; r < kRows; ++r) {
    for (int32_t t = 0; t < kTokens; ++t) {
      sums[r][t] = zero();
    }
  }
  const auto add_lanes = [&](auto&& weight_lanes, auto&& x_lanes) KIPP_INLINE_LAMBDA {
    F16 wide[size_t{kRows}];
    for (int32_t r = 0; r < kRows; ++r) {
      wide[r] = weight_lanes(r);
    }
    for (int32_t t = 0; t < kTokens; ++t) {
      const F16 value = x_lanes(t);
      for (int32_t r = 0; r < kRows; ++r) {
        sums[r][t] = fma(wide[r], value, sums[r][t]);
      }
    }
  };
  const uint16_t* next = tile.weight + kRows * columns;
  int32_t c = 0;
  for (; c + kLanes <= tile.columns; c += kLanes) {
    if (kTokens == 1 && tile.has_next) {
      prefetch(next + ptrdiff_t{c} * kRows, kRows * kLanes * 2);
    }
    add_lanes([&](int32_t r) KIPP_INLINE_LAMBDA { return widen(tile.weight + r * columns + c); },
              [&](int32_t t) KIPP_INLINE_LAMBDA { return load(tile.x + t * columns + c); });
  }
  if (const int32_t rest = tile.columns - c; rest > 0) {
    add_lanes([&](int32_t r) KIPP_INLINE_LAMBDA { return widen_some(tile.weight + r * columns + c, rest); },
              [&](int32_t t) KIPP_INLINE_LAMBDA { return load_some(tile.x + t * columns + c, rest); });
  }
  for (int32_t t = 0; t < kTokens; ++t) {
    for (int32_t r = 0; r < kRows; ++r) {
      tile.out[t * tile.out_stride + r] = total(sums[r][t]);
    }
  }
}

template <int32_t kRows>
void multiply_tokens(const Tile& tile, int32_t num_tokens) {
  if constexpr (kTokenTile > 2) {
    switch (num_tokens) {
      case 6: return multiply_tile<kRows, 6>(tile);
      case 5: return multiply_tile<kRows, 5>(tile);
      case 4: return multiply_tile<kRows, 4>(tile);
      case 3: return multiply_tile<kRows, 3>(tile);
      default: break;
    }
  }
  if (num_tokens == 2) {
    return multiply_tile<kRows, 2>(tile);
  }
  multiply_tile<kRows, 1>(tile);
}

void multiply(const MultiplyArgs& args) {
  const auto* weight = reinterpret_cast<const uint16_t*>(args.weight);
  for (int32_t t = 0; t < args.num_tokens; t += kTokenTile) {
    const int32_t num_tokens = smaller(kTokenTile, args.num_tokens - t);
    Tile tile{nullptr, args.x + ptrdiff_t{t} * args.columns, nullptr, args.out_stride, args.columns, false};
    int32_t r = args.row_begin;
    for (; r + kRowTile <= args.row_end; r += kRowTile) {
      tile.weight = weight + ptrdiff_t{r} * args.columns;
      tile.out = args.out + t * args.out_stride + r;
      tile.has_next = r + kRowTile < args.row_end;
      multiply_tokens<kRowTile>(tile, num_tokens);
    }
    for (; r < args.row_end; ++r) {
      tile.weight = weight + ptrdiff_t{r} * args.columns;
      tile.out = args.out + t * args.out_stride + r;
      tile.has_next = r + 1 < args.row_end;
      multiply_tokens<1>(tile, num_tokens);
    }
  }
}

size_t packed_bytes(int32_t /*num_tokens*/, int32_t /*columns*/) {
  return 0;
}
void pack(const PackArgs& /*args*/, int32_t /*token_begin*/, int32_t /*token_end*/) {}

}  // namespace

const MatmulKernel kMatmulBf16Fp32 = {"matmul_bf16_fp32", kRowTile, 1, packed_bytes, pack, multiply};

}  // namespace kipp::cpu::KIPP_CPU_LEVEL
