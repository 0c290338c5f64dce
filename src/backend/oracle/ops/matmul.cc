// A matrix times each token's vector. Tiles of rows and tokens only decide what is read how often: every element is one
// dot product of 16 lanes, whatever the tile. Quantised weights are widened to the FP32 numbers that they stand for
// (docs/numerics.md), and enter the same sum.
#include <algorithm>
#include <cstring>

#include "backend/oracle/arithmetic.h"
#include "backend/oracle/ops/operators.h"
#include "base/check.h"
#include "base/f16.h"
#include "base/seeded_fault.h"

namespace kipp::oracle {
namespace {

constexpr int32_t kRowTile = 16;  // 16 rows of 9,728 bf16 weights are 304 KiB: they stay in the L2 cache for all tokens
constexpr int32_t kTokenTile = 8;     // tokens for which a weight is widened once
constexpr int32_t kColumnTile = 512;  // widened weights at a time: 2 KiB of the L1 cache; a multiple of 16 and of 32
constexpr int32_t kGroup = 32;        // weights in a block of Q8_0 and AFFINE4_GS32

// Widens `count` weights that are stored from `data` on, whole blocks of them.
using Widen = void (*)(const std::byte* data, int32_t count, float* wide);

float load_f16(const std::byte* data) {
  uint16_t bits;
  std::memcpy(&bits, data, sizeof bits);
  return f16_to_f32(bits);
}

void widen_bf16(const std::byte* data, int32_t count, float* wide) {
  const auto* weights = reinterpret_cast<const uint16_t*>(data);
  for (int32_t c = 0; c < count; ++c) {
    wide[c] = widen(weights[c]);
  }
}

// The scale of the block that begins at `data`, `block_bytes` behind the one before.
float scale_of(const std::byte* data, int32_t begin, int64_t block_bytes) {
  if (seeded(Fault::kScaleOffByOne) && begin > 0) data -= block_bytes;
  return load_f16(data);
}

// fp16 scale, 32 × int8. The product is exact: 11 bits times 7.
void widen_q8_0(const std::byte* data, int32_t count, float* wide) {
  constexpr int64_t kBlockBytes = weight_row_bytes(WeightType::kQ8_0, kGroup);
  for (int32_t begin = 0; begin < count; begin += kGroup, data += kBlockBytes) {
    const float scale = scale_of(data, begin, kBlockBytes);
    const auto* quants = reinterpret_cast<const int8_t*>(data + 2);
    for (int32_t i = 0; i < kGroup; ++i) {
      wide[begin + i] = scale * static_cast<float>(quants[i]);
    }
  }
}

// fp16 scale, fp16 bias, 16 bytes: weights 0 to 15 in the low nibbles, 16 to 31 in the high ones. The product is exact,
// so that the sum is the only rounding, fused or not.
void widen_affine4_gs32(const std::byte* data, int32_t count, float* wide) {
  constexpr int64_t kBlockBytes = weight_row_bytes(WeightType::kAffine4Gs32, kGroup);
  for (int32_t begin = 0; begin < count; begin += kGroup, data += kBlockBytes) {
    const float scale = scale_of(data, begin, kBlockBytes);
    const float bias = load_f16(data + 2);
    const auto* nibbles = reinterpret_cast<const uint8_t*>(data + 4);
    for (int32_t i = 0; i < kGroup / 2; ++i) {
      wide[begin + i] = scale * static_cast<float>(nibbles[i] & 15) + bias;
      wide[begin + kGroup / 2 + i] = scale * static_cast<float>(nibbles[i] >> 4) + bias;
    }
  }
}

Widen widen_of(WeightType type) {
  switch (type) {
    case WeightType::kBf16: return widen_bf16;
    case WeightType::kQ8_0: return widen_q8_0;
    case WeightType::kAffine4Gs32: return widen_affine4_gs32;
  }
  return nullptr;
}

// out[t] = row · x[t] for up to kTokenTile tokens.
void dot_tokens(const std::byte* row, Widen widen_weights, const MatmulArgs& args, const float* x, int32_t num_tokens,
                float* out) {
  LaneSum sums[kTokenTile];
  float wide[kColumnTile];
  for (int32_t begin = 0; begin < args.columns; begin += kColumnTile) {
    const int32_t count = std::min(kColumnTile, args.columns - begin);
    widen_weights(row + weight_row_bytes(args.type, begin), count, wide);
    for (int32_t t = 0; t < num_tokens; ++t) {
      add_products(sums[t], wide, x + ptrdiff_t{t} * args.columns + begin, count);
    }
  }
  for (int32_t t = 0; t < num_tokens; ++t) {
    out[t * args.out_stride] = sums[t].total();
  }
}

}  // namespace

void matmul(const MatmulArgs& args) {
  const Widen widen_weights = widen_of(args.type);
  KIPP_CHECK(widen_weights != nullptr);
  KIPP_CHECK(args.type == WeightType::kBf16 || args.columns % kGroup == 0);  // true of every matrix of the registry
  const int64_t row_bytes = weight_row_bytes(args.type, args.columns);
  for (int32_t row_begin = 0; row_begin < args.rows; row_begin += kRowTile) {
    const int32_t row_end = std::min(row_begin + kRowTile, args.rows);
    for (int32_t t = 0; t < args.num_tokens; t += kTokenTile) {
      const int32_t num_tokens = std::min(kTokenTile, args.num_tokens - t);
      const float* x = args.x + ptrdiff_t{t} * args.columns;
      for (int32_t r = row_begin; r < row_end; ++r) {
        float* out = args.out + t * args.out_stride + r;
        dot_tokens(args.weight + r * row_bytes, widen_weights, args, x, num_tokens, out);
      }
    }
  }
}

}  // namespace kipp::oracle
