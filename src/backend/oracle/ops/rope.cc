// Rotary position embedding. Angles are FP32 as in the reference; at position 262,143 their rounding matters, so it is
// part of the contract, while sine and cosine of that angle are the C library's in double.
#include <cmath>

#include "backend/oracle/ops/operators.h"

namespace kipp::oracle {
namespace {

float inverse_frequency(float theta, int32_t i, int32_t head_dim) {
  const double exponent = 2.0 * i / head_dim;
  return 1.0F / static_cast<float>(std::pow(static_cast<double>(theta), exponent));
}

}  // namespace

void rope(const RopeArgs& args) {
  const int32_t half = args.head_dim / 2;
  for (int32_t i = 0; i < half; ++i) {
    const float frequency = inverse_frequency(args.theta, i, args.head_dim);
    for (int32_t t = 0; t < args.num_tokens; ++t) {
      const float angle = static_cast<float>(args.positions[t]) * frequency;
      const auto cosine = static_cast<float>(std::cos(static_cast<double>(angle)));
      const auto sine = static_cast<float>(std::sin(static_cast<double>(angle)));
      for (int32_t h = 0; h < args.num_heads; ++h) {
        float* x = args.x + (ptrdiff_t{t} * args.num_heads + h) * args.head_dim;
        const float first = x[i];
        const float second = x[i + half];
        x[i] = first * cosine - second * sine;
        x[i + half] = second * cosine + first * sine;
      }
    }
  }
}

}  // namespace kipp::oracle
