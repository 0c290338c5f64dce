// x += y. Contract: model/operators.h. Grid: ⌈count / 4 / kElementwiseThreads⌉ threadgroups of kElementwiseThreads.
// matvec and matmul can add, too: this one is for what comes from elsewhere.
#include <metal_stdlib>

#include "backend/metal/kernels/arguments.h"
#include "backend/metal/kernels/common.h"

using namespace metal;
using namespace kipp_metal;

kernel void kipp_residual_add(device float4* x [[buffer(0)]],        // [count]
                              device const float4* y [[buffer(1)]],  // [count]
                              constant ElementwiseArgs& args [[buffer(2)]],
                              uint quad [[thread_position_in_grid]]) {
  if (quad < args.count / 4) x[quad] = x[quad] + y[quad];
}
