// Quantised weights times fixed-point activations, by what every instruction set has. For each element, over the blocks
// in order: an exact integer sum, one rounding to FP32, and one product-sum with the scale (and one with the bias).
#include "backend/cpu/kernels/fixed_point.h"

namespace kipp::cpu::KIPP_CPU_LEVEL {
namespace {

// a·b + c, fused where the vectors of this instruction set do it.
KIPP_INLINE float product_sum(float a, float b, float c) {
#if defined(__FMA__) || defined(__aarch64__)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

constexpr int32_t kTokenTile = 16;  // tokens that use a widened block before the next is widened

KIPP_INLINE int32_t dot(const int16_t* weights, const int16_t* x) {
  int32_t sum = 0;
  for (int32_t i = 0; i < kRun; ++i) {
    sum += weights[i] * x[i];
  }
  return sum;
}

// Σ w·integer, rounded to FP32.
template <int32_t kDigits>
KIPP_INLINE float exact_sum(const int16_t* weights, const FixedRun<kDigits>& run) {
  int16_t high[kRun];
  for (int32_t i = 0; i < kRun; ++i) {
    high[i] = static_cast<int16_t>(run.digits[0][i] * 256 + run.digits[1][i]);
  }
  const int32_t high_sum = dot(weights, high);
  if constexpr (kDigits == 2) {
    return static_cast<float>(high_sum);
  } else {
    int16_t last[kRun];
    for (int32_t i = 0; i < kRun; ++i) {
      last[i] = run.digits[2][i];
    }
    return product_sum(static_cast<float>(high_sum), 256.0F, static_cast<float>(dot(weights, last)));
  }
}

template <typename Block, int32_t kDigits>
void multiply_row(const MultiplyArgs& args, int32_t row, int32_t token_begin, int32_t token_end) {
  const int32_t num_blocks = args.columns / kRun;
  const auto* blocks = reinterpret_cast<const Block*>(args.weight) + ptrdiff_t{row} * num_blocks;
  const auto* runs = reinterpret_cast<const FixedRun<kDigits>*>(args.packed);
  float sums[kTokenTile] = {};
  for (int32_t b = 0; b < num_blocks; ++b) {
    int16_t weights[kRun];
    for (int32_t i = 0; i < kRun; ++i) {
      weights[i] = static_cast<int16_t>(weight_of(blocks[b], i));
    }
    const float scale = half_to_float(blocks[b].scale);
    for (int32_t t = token_begin; t < token_end; ++t) {
      const FixedRun<kDigits>& run = runs[ptrdiff_t{t} * num_blocks + b];
      float& sum = sums[t - token_begin];
      sum = product_sum(exact_sum<kDigits>(weights, run), scale * run.step, sum);
      if constexpr (Block::kHasBias) {
        sum = product_sum(bias_of(blocks[b]), run.sum, sum);
      }
    }
  }
  for (int32_t t = token_begin; t < token_end; ++t) {
    args.out[t * args.out_stride + row] = sums[t - token_begin];
  }
}

template <typename Block, int32_t kDigits>
void multiply(const MultiplyArgs& args) {
  for (int32_t t = 0; t < args.num_tokens; t += kTokenTile) {
    const int32_t end = args.num_tokens - t < kTokenTile ? args.num_tokens : t + kTokenTile;
    for (int32_t row = args.row_begin; row < args.row_end; ++row) {
      multiply_row<Block, kDigits>(args, row, t, end);
    }
  }
}

template <int32_t kDigits>
size_t packed_bytes(int32_t num_tokens, int32_t columns) {
  return fixed_bytes<kDigits>(num_tokens, columns);
}

template <typename Block, int32_t kDigits>
constexpr MatmulKernel kernel(const char* name) {
  return {name, 1, 1, packed_bytes<kDigits>, pack_fixed<kDigits>, multiply<Block, kDigits>};
}

}  // namespace

const MatmulKernel kMatmulQ8Int16 = kernel<Q8Block, 2>("matmul_q8_0_int16");
const MatmulKernel kMatmulQ8Int24 = kernel<Q8Block, 3>("matmul_q8_0_int24");
const MatmulKernel kMatmulAffine4Int16 = kernel<Affine4Block, 2>("matmul_affine4_gs32_int16");
const MatmulKernel kMatmulAffine4Int24 = kernel<Affine4Block, 3>("matmul_affine4_gs32_int24");

}  // namespace kipp::cpu::KIPP_CPU_LEVEL
