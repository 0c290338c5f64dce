// Rows of the embedding table, widened. Contract: model/operators.h. One thread four channels; grid: (⌈hidden / 4 /
// kElementwiseThreads⌉, num_rows) threadgroups of kElementwiseThreads.
#include <metal_stdlib>

#include "backend/metal/kernels/arguments.h"
#include "backend/metal/kernels/common.h"

using namespace metal;
using namespace kipp_metal;

kernel void kipp_embedding(device const uint2* table [[buffer(0)]],  // [vocab][hidden] bf16
                           device const int* ids [[buffer(1)]],      // [num_rows]
                           device float4* out [[buffer(2)]],         // [num_rows][hidden]
                           constant EmbeddingArgs& args [[buffer(3)]],
                           uint2 group [[threadgroup_position_in_grid]],
                           uint2 thread_position [[thread_position_in_threadgroup]]) {
  const uint quad = group.x * kElementwiseThreads + thread_position.x;
  const uint quads = args.hidden / 4;
  if (quad >= quads) return;
  out[ulong(group.y) * quads + quad] = widen4(table[ulong(ids[group.y]) * quads + quad]);
}
