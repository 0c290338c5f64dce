// Causal attention of a whole prompt over K and V in plain arrays, without pool, tables and positions: the other side of
// the comparison of cached with stateless evaluation. K and V are rounded to bf16, as the pool would. One simdgroup a token
// and query head; 32 positions at a time, in order, with a running maximum.
// Grid: (num_query_heads, num_tokens) threadgroups of kSimdLanes.
#include <metal_stdlib>

#include "backend/metal/kernels/arguments.h"
#include "backend/metal/kernels/common.h"

using namespace metal;
using namespace kipp_metal;

constant uint kQueryHeads [[function_constant(0)]];  // a multiple of kKvHeads

namespace {

float rounded(float value) { return widen(round_to_bf16(value)); }

float4 rounded4(float4 value) { return float4(rounded(value.x), rounded(value.y), rounded(value.z), rounded(value.w)); }

float score(device const float* q, device const float* key) {
  float sum = 0.0f;
  for (uint d = 0; d < kHeadWidth; ++d) sum = fma(q[d], rounded(key[d]), sum);
  return sum * (1.0f / sqrt(float(kHeadWidth)));
}

}  // namespace

kernel void kipp_attention_stateless(
    device const float* q [[buffer(0)]],  // [num_tokens][kQueryHeads][kHeadWidth], row stride q_stride
    device const float* k [[buffer(1)]],  // [num_tokens][kKvHeads][kHeadWidth], row stride kv_stride
    device const float* v [[buffer(2)]],  // [num_tokens][kKvHeads][kHeadWidth], row stride kv_stride
    device float* out [[buffer(3)]],      // [num_tokens][kQueryHeads][kHeadWidth], row stride out_stride
    constant StatelessAttentionArgs& args [[buffer(4)]], uint2 place [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]]) {
  const uint head = place.x;
  const uint token = place.y;
  const uint kv_head = head / (kQueryHeads / kKvHeads);
  device const float* own = q + ulong(token) * args.q_stride + head * kHeadWidth;
  float maximum = -INFINITY;
  float weights = 0.0f;
  float4 values = float4(0.0f);
  for (uint first = 0; first <= token; first += kSimdLanes) {
    const uint count = min(kSimdLanes, token + 1 - first);
    const bool is_visible = lane < count;
    const float own_score =
        is_visible ? score(own, k + ulong(first + lane) * args.kv_stride + kv_head * kHeadWidth) : -INFINITY;
    const float largest = fmax(maximum, lane_max(own_score));
    const float before = exp(maximum - largest);
    const float weight = is_visible ? exp(own_score - largest) : 0.0f;
    weights = weights * before + lane_sum(weight);
    values = values * before;
    maximum = largest;
    for (uint i = 0; i < count; ++i) {
      device const float4* value =
          reinterpret_cast<device const float4*>(v + ulong(first + i) * args.kv_stride + kv_head * kHeadWidth);
      values = fma(float4(simd_shuffle(weight, ushort(i))), rounded4(value[lane]), values);
    }
  }
  reinterpret_cast<device float4*>(out + ulong(token) * args.out_stride + head * kHeadWidth)[lane] = values / weights;
}
