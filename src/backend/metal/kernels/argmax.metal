// The largest of each row of logits; of equals the lowest index. Grid: num_rows threadgroups of kArgmaxThreads.
#include <metal_stdlib>

#include "backend/metal/kernels/arguments.h"
#include "backend/metal/kernels/common.h"

using namespace metal;
using namespace kipp_metal;

namespace {

struct Best {
  float value;
  uint index;
  uint finite;
};

Best better(Best a, Best b) {
  const bool takes_b = b.value > a.value || (b.value == a.value && b.index < a.index);
  Best best;
  best.value = takes_b ? b.value : a.value;
  best.index = takes_b ? b.index : a.index;
  best.finite = a.finite & b.finite;
  return best;
}

}  // namespace

// scratch: three words a simdgroup.
kernel void kipp_argmax(device const float* logits [[buffer(0)]],  // [num_rows][width], row stride stride
                        device ArgmaxResult* results [[buffer(1)]], constant ArgmaxArgs& args [[buffer(2)]],
                        threadgroup uint* scratch [[threadgroup(0)]], uint row [[threadgroup_position_in_grid]],
                        uint index [[thread_position_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                        uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  device const float* x = logits + ulong(row) * args.stride;
  Best best;
  best.value = -INFINITY;
  best.index = 0xFFFFFFFFu;
  best.finite = 1;
  for (uint i = index; i < args.width; i += kArgmaxThreads) {
    Best next;
    next.value = x[i];
    next.index = i;
    next.finite = isfinite(next.value) ? 1u : 0u;
    best = better(best, next);
  }
  for (ushort apart = 16; apart > 0; apart /= 2) {
    Best other;
    other.value = simd_shuffle_xor(best.value, apart);
    other.index = simd_shuffle_xor(best.index, apart);
    other.finite = simd_shuffle_xor(best.finite, apart);
    best = better(best, other);
  }
  if (lane == 0) {
    scratch[simdgroup * 3] = as_type<uint>(best.value);
    scratch[simdgroup * 3 + 1] = best.index;
    scratch[simdgroup * 3 + 2] = best.finite;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (index != 0) return;
  for (uint s = 1; s < kArgmaxThreads / kSimdLanes; ++s) {
    Best other;
    other.value = as_type<float>(scratch[s * 3]);
    other.index = scratch[s * 3 + 1];
    other.finite = scratch[s * 3 + 2];
    best = better(best, other);
  }
  results[row].index = best.finite != 0 ? best.index : 0xFFFFFFFFu;
  results[row].value = best.value;
  results[row].finite = best.finite;
}
