// The sizes that these kernels were compiled for, as the GPU sees them; the host compares them with its own when it starts.
// Grid: one threadgroup of any number of threads.
#include <metal_stdlib>

#include "backend/metal/kernels/arguments.h"
#include "backend/metal/kernels/common.h"

using namespace metal;
using namespace kipp_metal;

kernel void kipp_probe_geometry(device Geometry& found [[buffer(0)]], uint index [[thread_index_in_threadgroup]],
                                uint lanes [[threads_per_simdgroup]], uint3 threads [[threads_per_threadgroup]]) {
  if (index != 0) return;
  found.simd_lanes = lanes;
  found.threads = threads.x;
  found.matvec_rows = kMatvecRows;
  found.matvec_tokens = kMatvecTokens;
  found.matmul_tokens = kMatmulTokens;
  found.matmul_rows = kMatmulRows;
  found.matmul_threadgroup_bytes = kMatmulThreadgroupBytes;
  found.split_positions = kSplitPositions;
  found.decode_threadgroup_bytes = kDecodeThreadgroupBytes;
  found.prompt_tokens = kPromptTokens;
  found.prompt_threadgroup_bytes = kPromptThreadgroupBytes;
  found.kv_write_args_bytes = sizeof(KvWriteArgs);
  found.decode_args_bytes = sizeof(AttentionDecodeArgs);
  found.prompt_args_bytes = sizeof(AttentionPromptArgs);
}
