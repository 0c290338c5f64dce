// Adds a block's output to the residual stream.
#include "backend/oracle/ops/operators.h"

namespace kipp::oracle {

void residual_add(const ResidualAddArgs& args) {
  for (int64_t i = 0; i < args.count; ++i) {
    args.x[i] += args.y[i];
  }
}

}  // namespace kipp::oracle
