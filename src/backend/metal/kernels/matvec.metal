// A matrix times up to kMatvecTokens generated rows, which read the weights once. Contract: model/operators.h, matmul.
// A lane takes eight columns of every 256; each lane adds its terms in order and lane_sum adds the lanes. That order
// depends on the columns alone. Quantised weights enter as integers: scale (and bias) multiply sums of eight products.
// Grid: ⌈rows / kMatvecRows⌉ threadgroups of kMatvecThreads.
#include <metal_stdlib>

#include "backend/metal/kernels/arguments.h"
#include "backend/metal/kernels/common.h"
#include "backend/metal/kernels/weights.h"

using namespace metal;
using namespace kipp_metal;

constant uint kColumns [[function_constant(0)]];  // a multiple of 32
constant uint kTokens [[function_constant(1)]];   // 1 … kMatvecTokens
constant bool kAdds [[function_constant(2)]];     // out += instead of out =

namespace {

constant constexpr uint kLaneColumns = 8;
constant constexpr uint kSimdColumns = kSimdLanes * kLaneColumns;

float dot8(float4 a, float4 b, float4 x, float4 y) {
  float sum = a.x * x.x;
  sum = fma(a.y, x.y, sum);
  sum = fma(a.z, x.z, sum);
  sum = fma(a.w, x.w, sum);
  sum = fma(b.x, y.x, sum);
  sum = fma(b.y, y.y, sum);
  sum = fma(b.z, y.z, sum);
  return fma(b.w, y.w, sum);
}

float sum8(float4 x, float4 y) { return ((x.x + x.y) + (x.z + x.w)) + ((y.x + y.y) + (y.z + y.w)); }

template <typename Format>
void multiply(device const uchar* weight, device const float* x, device float* out, constant MatvecArgs& args, uint group,
              uint lane, uint simdgroup) {
  const uint first_row = group * kMatvecRows + simdgroup * kMatvecRowsPerSimdgroup;
  device const uchar* rows[kMatvecRowsPerSimdgroup];
  for (uint r = 0; r < kMatvecRowsPerSimdgroup; ++r) {
    const uint row = min(first_row + r, args.rows - 1);  // rows that there are not repeat the last one
    rows[r] = weight + ulong(row) * Format::row_bytes(kColumns);
  }
  float sums[kMatvecRowsPerSimdgroup][kMatvecTokens];
  for (uint r = 0; r < kMatvecRowsPerSimdgroup; ++r) {
    for (uint t = 0; t < kMatvecTokens; ++t) sums[r][t] = 0.0f;
  }
  for (uint begin = 0; begin < kColumns; begin += kSimdColumns) {
    if (begin + lane * kLaneColumns >= kColumns) break;
    Eight weights[kMatvecRowsPerSimdgroup];
    for (uint r = 0; r < kMatvecRowsPerSimdgroup; ++r) weights[r] = Format::load(rows[r], begin, lane);
    for (uint t = 0; t < kTokens; ++t) {
      device const float* token = x + t * args.x_stride + begin;
      const float4 low = *reinterpret_cast<device const float4*>(token + Format::low_columns(lane));
      const float4 high = *reinterpret_cast<device const float4*>(token + Format::high_columns(lane));
      const float sum = sum8(low, high);
      for (uint r = 0; r < kMatvecRowsPerSimdgroup; ++r) {
        const float products = dot8(weights[r].low, weights[r].high, low, high);
        sums[r][t] = Format::add(sums[r][t], weights[r], products, sum);
      }
    }
  }
  for (uint r = 0; r < kMatvecRowsPerSimdgroup; ++r) {
    for (uint t = 0; t < kTokens; ++t) {
      const float total = lane_sum(sums[r][t]);
      if (lane != 0 || first_row + r >= args.rows) continue;
      device float& place = out[ulong(t) * args.out_stride + first_row + r];
      place = kAdds ? place + total : total;
    }
  }
}

}  // namespace

kernel void kipp_matvec_bf16(device const uchar* weight [[buffer(0)]],  // [rows][kColumns] bf16
                             device const float* x [[buffer(1)]],       // [kTokens][kColumns], row stride x_stride
                             device float* out [[buffer(2)]],           // [kTokens][rows], row stride out_stride
                             constant MatvecArgs& args [[buffer(3)]], uint group [[threadgroup_position_in_grid]],
                             uint lane [[thread_index_in_simdgroup]],
                             uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  multiply<Bf16>(weight, x, out, args, group, lane, simdgroup);
}

kernel void kipp_matvec_q8_0(device const uchar* weight [[buffer(0)]], device const float* x [[buffer(1)]],
                             device float* out [[buffer(2)]], constant MatvecArgs& args [[buffer(3)]],
                             uint group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
                             uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  multiply<Q8_0>(weight, x, out, args, group, lane, simdgroup);
}

kernel void kipp_matvec_affine4(device const uchar* weight [[buffer(0)]], device const float* x [[buffer(1)]],
                                device float* out [[buffer(2)]], constant MatvecArgs& args [[buffer(3)]],
                                uint group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
                                uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  multiply<Affine4>(weight, x, out, args, group, lane, simdgroup);
}
