// A matrix times each token's vector. Tiles of rows and tokens only decide what is read how often: every element is one
// dot product of 16 lanes, whatever the tile.
#include <algorithm>

#include "backend/oracle/arithmetic.h"
#include "backend/oracle/ops/operators.h"
#include "base/check.h"

namespace kipp::oracle {
namespace {

constexpr int32_t kRowTile = 16;  // 16 rows of 9,728 bf16 weights are 304 KiB: they stay in the L2 cache for all tokens
constexpr int32_t kTokenTile = 8;     // tokens for which a weight is widened once
constexpr int32_t kColumnTile = 512;  // widened weights at a time: 2 KiB of the L1 cache; a multiple of 16

// out[t] = w · x[t] for up to kTokenTile tokens.
void dot_tokens(const uint16_t* w, const MatmulArgs& args, const float* x, int32_t num_tokens, float* out) {
  LaneSum sums[kTokenTile];
  float wide[kColumnTile];
  for (int32_t begin = 0; begin < args.columns; begin += kColumnTile) {
    const int32_t count = std::min(kColumnTile, args.columns - begin);
    for (int32_t c = 0; c < count; ++c) {
      wide[c] = widen(w[begin + c]);
    }
    for (int32_t t = 0; t < num_tokens; ++t) {
      add_products(sums[t], wide, x + ptrdiff_t{t} * args.columns + begin, count);
    }
  }
  for (int32_t t = 0; t < num_tokens; ++t) {
    out[t * args.out_stride] = sums[t].total();
  }
}

void matmul_bf16(const MatmulArgs& args) {
  const auto* weight = reinterpret_cast<const uint16_t*>(args.weight);
  for (int32_t row_begin = 0; row_begin < args.rows; row_begin += kRowTile) {
    const int32_t row_end = std::min(row_begin + kRowTile, args.rows);
    for (int32_t t = 0; t < args.num_tokens; t += kTokenTile) {
      const int32_t num_tokens = std::min(kTokenTile, args.num_tokens - t);
      const float* x = args.x + ptrdiff_t{t} * args.columns;
      for (int32_t r = row_begin; r < row_end; ++r) {
        dot_tokens(weight + ptrdiff_t{r} * args.columns, args, x, num_tokens, args.out + t * args.out_stride + r);
      }
    }
  }
}

}  // namespace

void matmul(const MatmulArgs& args) {
  KIPP_CHECK(args.type == WeightType::kBf16);  // loading has refused every other scheme
  matmul_bf16(args);
}

}  // namespace kipp::oracle
