// Rows of the embedding table, widened.
#include "backend/oracle/arithmetic.h"
#include "backend/oracle/ops/operators.h"

namespace kipp::oracle {

void embedding(const EmbeddingArgs& args) {
  for (int32_t t = 0; t < args.num_tokens; ++t) {
    const uint16_t* row = args.table + ptrdiff_t{args.ids[t]} * args.hidden;
    float* out = args.out + ptrdiff_t{t} * args.hidden;
    for (int32_t c = 0; c < args.hidden; ++c) {
      out[c] = widen(row[c]);
    }
  }
}

}  // namespace kipp::oracle
