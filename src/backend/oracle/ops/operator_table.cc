// What the oracle exports to the operator tests: everything that its forward pass runs.
#include "backend/oracle/ops/operators.h"

namespace kipp::oracle {

const OperatorTable& operator_table() {
  static constexpr OperatorTable kTable = {
      .backend = "oracle",
      .embedding = embedding,
      .rms_norm = rms_norm,
      .matmul = matmul,
      .rope = rope,
      .kv_write = kv_write,
      .attention = attention,
      .swiglu = swiglu,
      .residual_add = residual_add,
  };
  return kTable;
}

}  // namespace kipp::oracle
