// Root-mean-square normalisation of rows. Contract: model/operators.h. The order of a row's sum depends on its width alone.
// kipp_rms_norm: one threadgroup of kNormThreads a row; out may be x. kipp_rms_norm_gather: row i of out is row rows[i] of x.
// kipp_rms_norm_heads: rows of kHeadWidth, one simdgroup each; kHeadNormThreads / 32 rows a threadgroup.
#include <metal_stdlib>

#include "backend/metal/kernels/arguments.h"
#include "backend/metal/kernels/common.h"

using namespace metal;
using namespace kipp_metal;

constant uint kColumns [[function_constant(0)]];  // a multiple of 4

namespace {

constant constexpr uint kNormSimdgroups = kNormThreads / kSimdLanes;

float sum_of_squares(float4 x) { return fma(x.w, x.w, fma(x.z, x.z, fma(x.y, x.y, x.x * x.x))); }

// scales: [kNormSimdgroups] sums of the simdgroups.
void norm_row(device const float* x, device const uint2* weight, device float* out, float epsilon,
              threadgroup float* sums, uint index, uint lane, uint simdgroup) {
  device const float4* x4 = reinterpret_cast<device const float4*>(x);
  device float4* out4 = reinterpret_cast<device float4*>(out);
  float sum = 0.0f;
  for (uint i = index; i < kColumns / 4; i += kNormThreads) sum += sum_of_squares(x4[i]);
  sum = lane_sum(sum);
  if (lane == 0) sums[simdgroup] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float total = 0.0f;
  for (uint s = 0; s < kNormSimdgroups; ++s) total += sums[s];
  const float scale = 1.0f / sqrt(total / float(kColumns) + epsilon);
  for (uint i = index; i < kColumns / 4; i += kNormThreads) out4[i] = (x4[i] * scale) * widen4(weight[i]);
}

}  // namespace

kernel void kipp_rms_norm(device const float* x [[buffer(0)]],       // [num_rows][kColumns], row stride x_stride
                          device const uint2* weight [[buffer(1)]],  // [kColumns] bf16
                          device float* out [[buffer(2)]],           // [num_rows][kColumns], row stride out_stride
                          constant RmsNormArgs& args [[buffer(3)]], threadgroup float* sums [[threadgroup(0)]],
                          uint row [[threadgroup_position_in_grid]], uint index [[thread_position_in_threadgroup]],
                          uint lane [[thread_index_in_simdgroup]],
                          uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  norm_row(x + ulong(row) * args.x_stride, weight, out + ulong(row) * args.out_stride, args.epsilon, sums, index, lane,
           simdgroup);
}

kernel void kipp_rms_norm_gather(device const float* x [[buffer(0)]], device const uint2* weight [[buffer(1)]],
                                 device float* out [[buffer(2)]], constant RmsNormArgs& args [[buffer(3)]],
                                 device const int* rows [[buffer(4)]],  // [num_rows]
                                 threadgroup float* sums [[threadgroup(0)]],
                                 uint row [[threadgroup_position_in_grid]],
                                 uint index [[thread_position_in_threadgroup]],
                                 uint lane [[thread_index_in_simdgroup]],
                                 uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  norm_row(x + ulong(rows[row]) * args.x_stride, weight, out + ulong(row) * args.out_stride, args.epsilon, sums, index,
           lane, simdgroup);
}

// Rows are heads: x_stride is from one head to the next. kColumns is kHeadWidth.
kernel void kipp_rms_norm_heads(device const float* x [[buffer(0)]],       // [num_rows][kHeadWidth]
                                device const uint2* weight [[buffer(1)]],  // [kHeadWidth] bf16
                                device float* out [[buffer(2)]],           // [num_rows][kHeadWidth]
                                constant RmsNormArgs& args [[buffer(3)]],
                                uint group [[threadgroup_position_in_grid]],
                                uint lane [[thread_index_in_simdgroup]],
                                uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const uint row = group * (kHeadNormThreads / kSimdLanes) + simdgroup;
  const bool exists = row < args.num_rows;
  const ulong at = ulong(exists ? row : 0);
  const float4 value = reinterpret_cast<device const float4*>(x + at * args.x_stride)[lane];
  const float total = lane_sum(sum_of_squares(value));
  const float scale = 1.0f / sqrt(total / float(kHeadWidth) + args.epsilon);
  if (!exists) return;
  reinterpret_cast<device float4*>(out + at * args.out_stride)[lane] = (value * scale) * widen4(weight[lane]);
}
