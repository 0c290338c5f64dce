// A matrix times the prompt rows of a step. Contract: model/operators.h. Tiles of kMatmulTokens × kMatmulRows; weights are
// widened to FP32 (scale · q is exact, the bias is one rounding) and multiplied by FP32 activations in simdgroup matrices,
// in order of the columns: an element's sum knows neither the tile's other elements nor how many tokens there are.
// Grid: (⌈rows / kMatmulRows⌉, ⌈num_tokens / kMatmulTokens⌉) threadgroups of kMatmulThreads.
#include <metal_simdgroup_matrix>
#include <metal_stdlib>

#include "backend/metal/kernels/arguments.h"
#include "backend/metal/kernels/common.h"
#include "backend/metal/kernels/weights.h"

using namespace metal;
using namespace kipp_metal;

constant uint kColumns [[function_constant(0)]];  // a multiple of 32
constant bool kAdds [[function_constant(2)]];     // out += instead of out =

namespace {

constant constexpr uint kThreadsPerRow = 4;  // of a step, when a tile is read: eight columns each
constant constexpr uint kRowsAtOnce = kMatmulThreads / kThreadsPerRow;

void store8(threadgroup float* row, uint low, uint high, float4 a, float4 b) {
  *reinterpret_cast<threadgroup float4*>(row + low) = a;
  *reinterpret_cast<threadgroup float4*>(row + high) = b;
}

// A step's columns of the tile's tokens; tokens that there are not are zero.
void read_tokens(device const float* x, constant MatmulArgs& args, uint first_token, uint column, uint index,
                 threadgroup float* tile) {
  const uint part = index % kThreadsPerRow * 8;
  for (uint t = index / kThreadsPerRow; t < kMatmulTokens; t += kRowsAtOnce) {
    float4 low = float4(0.0f);
    float4 high = float4(0.0f);
    if (first_token + t < args.num_tokens) {
      device const float4* from =
          reinterpret_cast<device const float4*>(x + ulong(first_token + t) * args.x_stride + column + part);
      low = from[0];
      high = from[1];
    }
    store8(tile + t * kMatmulStride, part, part + 4, low, high);
  }
}

template <typename Format>
void read_weights(device const uchar* weight, constant MatmulArgs& args, uint first_row, uint column, uint index,
                  threadgroup float* tile) {
  const uint part = index % kThreadsPerRow;
  for (uint r = index / kThreadsPerRow; r < kMatmulRows; r += kRowsAtOnce) {
    float4 low = float4(0.0f);
    float4 high = float4(0.0f);
    if (first_row + r < args.rows) {
      const Eight eight = Format::load(weight + ulong(first_row + r) * Format::row_bytes(kColumns), column, part);
      low = eight.low * eight.scale + eight.bias;
      high = eight.high * eight.scale + eight.bias;
    }
    store8(tile + r * kMatmulStride, Format::low_columns(part), Format::high_columns(part), low, high);
  }
}

template <typename Format>
void multiply(device const uchar* weight, device const float* x, device float* out, constant MatmulArgs& args,
              threadgroup float* scratch, uint2 group, uint index, uint simdgroup) {
  const uint first_row = group.x * kMatmulRows;
  const uint first_token = group.y * kMatmulTokens;
  threadgroup float* tokens = scratch;                                 // [kMatmulTokens][kMatmulStride]
  threadgroup float* rows = scratch + kMatmulTokens * kMatmulStride;  // [kMatmulRows][kMatmulStride]
  // A simdgroup computes 16 tokens × 32 rows.
  const uint own_token = simdgroup / 2 * 16;
  const uint own_row = simdgroup % 2 * 32;
  simdgroup_float8x8 sums[2][4];
  for (uint i = 0; i < 2; ++i) {
    for (uint j = 0; j < 4; ++j) sums[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  }
  for (uint column = 0; column < kColumns; column += kMatmulStep) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    read_tokens(x, args, first_token, column, index, tokens);
    read_weights<Format>(weight, args, first_row, column, index, rows);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint k = 0; k < kMatmulStep; k += 8) {
      simdgroup_float8x8 a[2];
      simdgroup_float8x8 b[4];
      for (uint i = 0; i < 2; ++i) simdgroup_load(a[i], tokens + (own_token + i * 8) * kMatmulStride + k, kMatmulStride);
      for (uint j = 0; j < 4; ++j) {
        simdgroup_load(b[j], rows + (own_row + j * 8) * kMatmulStride + k, kMatmulStride, ulong2(0, 0), true);
      }
      for (uint i = 0; i < 2; ++i) {
        for (uint j = 0; j < 4; ++j) simdgroup_multiply_accumulate(sums[i][j], a[i], b[j], sums[i][j]);
      }
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = 0; i < 2; ++i) {
    for (uint j = 0; j < 4; ++j) {
      simdgroup_store(sums[i][j], scratch + (own_token + i * 8) * kMatmulOutStride + own_row + j * 8, kMatmulOutStride);
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = index; i < kMatmulTokens * kMatmulRows; i += kMatmulThreads) {
    const uint t = i / kMatmulRows;
    const uint r = i % kMatmulRows;
    if (first_token + t >= args.num_tokens || first_row + r >= args.rows) continue;
    device float& place = out[ulong(first_token + t) * args.out_stride + first_row + r];
    const float total = scratch[t * kMatmulOutStride + r];
    place = kAdds ? place + total : total;
  }
}

}  // namespace

kernel void kipp_matmul_bf16(device const uchar* weight [[buffer(0)]],  // [rows][kColumns] bf16
                             device const float* x [[buffer(1)]],       // [num_tokens][kColumns], row stride x_stride
                             device float* out [[buffer(2)]],           // [num_tokens][rows], row stride out_stride
                             constant MatmulArgs& args [[buffer(3)]], threadgroup float* scratch [[threadgroup(0)]],
                             uint2 group [[threadgroup_position_in_grid]], uint index [[thread_index_in_threadgroup]],
                             uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  multiply<Bf16>(weight, x, out, args, scratch, group, index, simdgroup);
}

kernel void kipp_matmul_q8_0(device const uchar* weight [[buffer(0)]], device const float* x [[buffer(1)]],
                             device float* out [[buffer(2)]], constant MatmulArgs& args [[buffer(3)]],
                             threadgroup float* scratch [[threadgroup(0)]],
                             uint2 group [[threadgroup_position_in_grid]], uint index [[thread_index_in_threadgroup]],
                             uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  multiply<Q8_0>(weight, x, out, args, scratch, group, index, simdgroup);
}

kernel void kipp_matmul_affine4(device const uchar* weight [[buffer(0)]], device const float* x [[buffer(1)]],
                                device float* out [[buffer(2)]], constant MatmulArgs& args [[buffer(3)]],
                                threadgroup float* scratch [[threadgroup(0)]],
                                uint2 group [[threadgroup_position_in_grid]],
                                uint index [[thread_index_in_threadgroup]],
                                uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  multiply<Affine4>(weight, x, out, args, scratch, group, index, simdgroup);
}
