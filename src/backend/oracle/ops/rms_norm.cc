// Root-mean-square normalisation of each row.
#include <cmath>

#include "backend/oracle/arithmetic.h"
#include "backend/oracle/ops/operators.h"

namespace kipp::oracle {

void rms_norm(const RmsNormArgs& args) {
  for (int32_t r = 0; r < args.rows; ++r) {
    const float* x = args.x + r * args.x_stride;
    float* out = args.out + r * args.out_stride;
    const float mean_square = dot(x, x, args.columns) / static_cast<float>(args.columns);
    const float scale = 1.0F / std::sqrt(mean_square + args.epsilon);
    for (int32_t c = 0; c < args.columns; ++c) {
      out[c] = (x[c] * scale) * widen(args.weight[c]);
    }
  }
}

}  // namespace kipp::oracle
