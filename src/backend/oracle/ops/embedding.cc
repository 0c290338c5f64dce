// Rows of the embedding table, widened.
#include <algorithm>

#include "backend/oracle/arithmetic.h"
#include "backend/oracle/ops/operators.h"
#include "base/seeded_fault.h"

namespace kipp::oracle {

void embedding(const EmbeddingArgs& args) {
  for (int32_t t = 0; t < args.num_tokens; ++t) {
    const int32_t id = seeded(Fault::kEmbeddingRowOffByOne) ? std::max(args.ids[t] - 1, 0) : args.ids[t];
    const uint16_t* row = args.table + ptrdiff_t{id} * args.hidden;
    float* out = args.out + ptrdiff_t{t} * args.hidden;
    for (int32_t c = 0; c < args.hidden; ++c) {
      out[c] = widen(row[c]);
    }
  }
}

}  // namespace kipp::oracle
