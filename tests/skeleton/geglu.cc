// The gated activation with GELU in place of SiLU.
#include "skeleton/geglu.h"

#include "base/portable_math.h"

namespace kipp::oracle {
namespace {

constexpr float kCubic = 0.044715F;
constexpr float kSlope = 1.5957691216057308F;  // sqrt(8/π)

float gelu(float x) {
  const float y = kSlope * (x + kCubic * (x * x * x));
  return x / (1.0F + exp_f32(-y));
}

}  // namespace

void geglu(const GegluArgs& args) {
  for (int32_t r = 0; r < args.rows; ++r) {
    const float* gate = args.gate + r * args.gate_stride;
    const float* up = args.up + r * args.up_stride;
    float* out = args.out + r * args.out_stride;
    for (int32_t c = 0; c < args.columns; ++c) {
      out[c] = gelu(gate[c]) * up[c];
    }
  }
}

}  // namespace kipp::oracle
