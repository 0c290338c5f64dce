// The gated activation of the feed-forward block.
#include "backend/oracle/ops/operators.h"
#include "base/portable_math.h"

namespace kipp::oracle {

void swiglu(const SwigluArgs& args) {
  for (int64_t i = 0; i < args.count; ++i) {
    const float gate = args.gate[i];
    args.out[i] = gate / (1.0F + exp_f32(-gate)) * args.up[i];
  }
}

}  // namespace kipp::oracle
