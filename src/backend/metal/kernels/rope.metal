// Rotary embedding in place. Contract: model/operators.h. Cosine and sine of every row and pair come from the host, which
// has double precision: they are the oracle's bits. Grid: (⌈num_heads · kHeadWidth / 2 / kElementwiseThreads⌉, num_rows)
// threadgroups of kElementwiseThreads, a thread a pair.
#include <metal_stdlib>

#include "backend/metal/kernels/arguments.h"
#include "backend/metal/kernels/common.h"

using namespace metal;
using namespace kipp_metal;

kernel void kipp_rope(device float* x [[buffer(0)]],              // [num_rows][num_heads][kHeadWidth], row stride x_stride
                      device const float2* angles [[buffer(1)]],  // [num_rows][kHeadWidth / 2] (cosine, sine)
                      constant RopeArgs& args [[buffer(2)]], uint2 group [[threadgroup_position_in_grid]],
                      uint2 thread_position [[thread_position_in_threadgroup]]) {
  constexpr uint kPairs = kHeadWidth / 2;
  const uint index = group.x * kElementwiseThreads + thread_position.x;
  const uint head = index / kPairs;
  const uint pair = index % kPairs;
  if (head >= args.num_heads) return;
  const float2 angle = angles[ulong(group.y) * kPairs + pair];
  device float* values = x + ulong(group.y) * args.x_stride + head * kHeadWidth + pair;
  const float first = values[0];
  const float second = values[kPairs];
  values[0] = first * angle.x - second * angle.y;
  values[kPairs] = second * angle.x + first * angle.y;
}
