// Root-mean-square normalisation of each row.
#include <cmath>

#include "backend/oracle/arithmetic.h"
#include "backend/oracle/ops/operators.h"
#include "base/seeded_fault.h"

namespace kipp::oracle {

void rms_norm(const RmsNormArgs& args) {
  for (int32_t r = 0; r < args.rows; ++r) {
    const float* x = args.x + r * args.x_stride;
    float* out = args.out + r * args.out_stride;
    const float mean_square = dot(x, x, args.columns) / static_cast<float>(args.columns);
    const float scale = 1.0F / std::sqrt(mean_square + args.epsilon);
    for (int32_t c = 0; c < args.columns; ++c) {
      const int32_t channel = seeded(Fault::kNormScaleOffByOne) ? (c + 1) % args.columns : c;
      out[c] = (x[c] * scale) * widen(args.weight[channel]);
    }
  }
}

}  // namespace kipp::oracle
