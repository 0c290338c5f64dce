// Rows split over threads. In the oracle this is a member of ThreadedOperators, which counts the call and picks the
// grain (src/backend/oracle/threaded_operators.cc).
#include "skeleton/geglu.h"

namespace kipp::oracle {

void threaded_geglu(ThreadPool& threads, const GegluArgs& args) {
  threads.parallel_for(args.rows, 1, [&](int64_t begin, int64_t end) {
    GegluArgs part = args;
    part.gate += begin * args.gate_stride;
    part.up += begin * args.up_stride;
    part.out += begin * args.out_stride;
    part.rows = static_cast<int32_t>(end - begin);
    geglu(part);
  });
}

}  // namespace kipp::oracle
