// K and V of a step's rows into the pool, rounded to bf16. Contract: model/operators.h; places: KvWriteArgs.
// Grid: (kKvHeads · kHeadWidth / 4 / kElementwiseThreads, num_rows, 2) threadgroups of kElementwiseThreads; z: K, V.
#include <metal_stdlib>

#include "backend/metal/kernels/arguments.h"
#include "backend/metal/kernels/common.h"

using namespace metal;
using namespace kipp_metal;

kernel void kipp_kv_write(device const float* k [[buffer(0)]],           // [num_rows][kKvHeads][kHeadWidth]
                          device const float* v [[buffer(1)]],           // [num_rows][kKvHeads][kHeadWidth]
                          device ushort* pool [[buffer(2)]],             // of the layer's first block
                          device const int* positions [[buffer(3)]],     // [num_rows]
                          device const int* sequences [[buffer(4)]],     // [num_rows]
                          device const int* block_tables [[buffer(5)]],  // [sequences][table_stride]
                          constant KvWriteArgs& args [[buffer(6)]], uint3 group [[threadgroup_position_in_grid]],
                          uint3 thread_position [[thread_position_in_threadgroup]]) {
  constexpr uint kHeadElements = kPositionsPerBlock * kHeadWidth;
  const uint row = group.y;
  const uint element = (group.x * kElementwiseThreads + thread_position.x) * 4;
  const uint head = element / kHeadWidth;
  const uint position = uint(positions[row]);
  const int block = block_tables[uint(sequences[row]) * args.table_stride + position / kPositionsPerBlock];
  device const float* values = group.z == 0 ? k + ulong(row) * args.k_stride : v + ulong(row) * args.v_stride;
  device ushort* place = pool + ulong(block) * args.block_stride + (group.z * kKvHeads + head) * kHeadElements +
                         position % kPositionsPerBlock * kHeadWidth + element % kHeadWidth;
  const float4 value = *reinterpret_cast<device const float4*>(values + element);
  *reinterpret_cast<device ushort4*>(place) =
      ushort4(round_to_bf16(value.x), round_to_bf16(value.y), round_to_bf16(value.z), round_to_bf16(value.w));
}
