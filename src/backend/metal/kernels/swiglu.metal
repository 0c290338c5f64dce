// The gated activation. Contract: model/operators.h; out may be gate or up. Grid: (⌈width / 4 / kElementwiseThreads⌉,
// num_rows) threadgroups of kElementwiseThreads.
#include <metal_stdlib>

#include "backend/metal/kernels/arguments.h"
#include "backend/metal/kernels/common.h"

using namespace metal;
using namespace kipp_metal;

namespace {

float silu(float x) { return x / (1.0f + exp(-x)); }

}  // namespace

kernel void kipp_swiglu(device const float* gate [[buffer(0)]],  // [num_rows][width], row stride gate_stride
                        device const float* up [[buffer(1)]],    // [num_rows][width], row stride up_stride
                        device float* out [[buffer(2)]],         // [num_rows][width], row stride out_stride
                        constant SwigluArgs& args [[buffer(3)]], uint2 group [[threadgroup_position_in_grid]],
                        uint2 thread_position [[thread_position_in_threadgroup]]) {
  const uint quad = group.x * kElementwiseThreads + thread_position.x;
  if (quad >= args.width / 4) return;
  const ulong row = group.y;
  const float4 g = reinterpret_cast<device const float4*>(gate + row * args.gate_stride)[quad];
  const float4 u = reinterpret_cast<device const float4*>(up + row * args.up_stride)[quad];
  reinterpret_cast<device float4*>(out + row * args.out_stride)[quad] =
      float4(silu(g.x) * u.x, silu(g.y) * u.y, silu(g.z) * u.z, silu(g.w) * u.w);
}
