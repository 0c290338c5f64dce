// Root-mean-square normalisation: the sum of squares in 16 lanes and a fixed tree.
#include "backend/cpu/kernels/level.h"
#include "backend/cpu/kernels/simd.h"

namespace kipp::cpu::KIPP_CPU_LEVEL {
namespace {

KIPP_INLINE float sum_of_squares(const float* x, int32_t count) {
  F16 sum = zero();
  int32_t c = 0;
  for (; c + kLanes <= count; c += kLanes) {
    const F16 value = load(x + c);
    sum = fma(value, value, sum);
  }
  if (c < count) {
    const F16 value = load_some(x + c, count - c);
    sum = fma(value, value, sum);
  }
  return total(sum);
}

}  // namespace

void rms_norm(const RmsNormArgs& args) {
  for (int32_t r = 0; r < args.rows; ++r) {
    const float* x = args.x + r * args.x_stride;
    float* out = args.out + r * args.out_stride;
    const float mean_square = sum_of_squares(x, args.columns) / static_cast<float>(args.columns);
    const F16 scale = broadcast(1.0F / __builtin_sqrtf(mean_square + args.epsilon));
    int32_t c = 0;
    for (; c + kLanes <= args.columns; c += kLanes) {
      store(out + c, mul(mul(load(x + c), scale), widen(args.weight + c)));
    }
    if (const int32_t rest = args.columns - c; rest > 0) {
      store_some(out + c, mul(mul(load_some(x + c, rest), scale), widen_some(args.weight + c, rest)), rest);
    }
  }
}

}  // namespace kipp::cpu::KIPP_CPU_LEVEL
