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

constexpr int32_t kRowTile = 64;  // rows that use a token's integers before the next run

KIPP_INLINE int32_t dot(const int16_t* weights, const int16_t* x) {
  int32_t sum = 0;
  for (int32_t i = 0; i < kRun; ++i) {
    sum += weights[i] * x[i];
  }
  return sum;
}

// A run's integers: all but the last digit of three, or both of two; and that last digit.
template <int32_t kDigits>
struct Integers {
  int16_t high[kRun];
  int16_t last[kRun];

  explicit Integers(const FixedRun<kDigits>& run) {
    for (int32_t i = 0; i < kRun; ++i) {
      high[i] = static_cast<int16_t>(run.digits[0][i] * 256 + run.digits[1][i]);
      last[i] = run.digits[kDigits - 1][i];
    }
  }

  // Σ weight·integer, rounded to FP32.
  KIPP_INLINE float exact_sum(const int16_t* weights) const {
    const auto high_sum = static_cast<float>(dot(weights, high));
    if constexpr (kDigits == 2) {
      return high_sum;
    } else {
      return product_sum(high_sum, 256.0F, static_cast<float>(dot(weights, last)));
    }
  }
};

// One token and rows [row, row + num_rows).
template <typename Block, int32_t kDigits>
void multiply_rows(const MultiplyArgs& args, int32_t token, int32_t row, int32_t num_rows) {
  const int32_t num_blocks = args.columns / kRun;
  const auto* blocks = reinterpret_cast<const Block*>(args.weight) + ptrdiff_t{row} * num_blocks;
  const auto* runs = reinterpret_cast<const FixedRun<kDigits>*>(args.packed) + ptrdiff_t{token} * num_blocks;
  float sums[kRowTile] = {};
  for (int32_t b = 0; b < num_blocks; ++b) {
    const Integers<kDigits> integers(runs[b]);
    for (int32_t r = 0; r < num_rows; ++r) {
      const Block& block = blocks[ptrdiff_t{r} * num_blocks + b];
      int16_t weights[kRun];
      widen_weights(block, weights);
      sums[r] = product_sum(integers.exact_sum(weights), half_to_float(block.scale) * runs[b].step, sums[r]);
      if constexpr (Block::kHasBias) {
        sums[r] = product_sum(bias_of(block), runs[b].sum, sums[r]);
      }
    }
  }
  for (int32_t r = 0; r < num_rows; ++r) {
    args.out[token * args.out_stride + row + r] = sums[r];
  }
}

template <typename Block, int32_t kDigits>
void multiply(const MultiplyArgs& args) {
  for (int32_t row = args.row_begin; row < args.row_end; row += kRowTile) {
    const int32_t num_rows = smaller(kRowTile, args.row_end - row);
    for (int32_t t = 0; t < args.num_tokens; ++t) {
      multiply_rows<Block, kDigits>(args, t, row, num_rows);
    }
  }
}

}  // namespace

const MatmulKernel kMatmulQ8Int16 = fixed_kernel<2>("matmul_q8_0_int16", 1, multiply<Q8Block, 2>);
const MatmulKernel kMatmulQ8Int24 = fixed_kernel<3>("matmul_q8_0_int24", 1, multiply<Q8Block, 3>);
const MatmulKernel kMatmulAffine4Int16 = fixed_kernel<2>("matmul_affine4_gs32_int16", 1, multiply<Affine4Block, 2>);
const MatmulKernel kMatmulAffine4Int24 = fixed_kernel<3>("matmul_affine4_gs32_int24", 1, multiply<Affine4Block, 3>);

}  // namespace kipp::cpu::KIPP_CPU_LEVEL
