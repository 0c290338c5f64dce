// Causal attention of generated rows over paged K and V, in two kernels. Contract: model/operators.h; places:
// AttentionDecodeArgs. kipp_attention_decode: splits of kSplitPositions positions, a threadgroup each; simdgroup s takes the
// blocks s, s + 4, … of the split in order with a running maximum, and the simdgroups are merged in order.
// kipp_attention_merge: the splits of a row and head in order. Positions above the row's are never read.
// Grids: (kKvHeads, max_splits, num_rows) of kDecodeThreads; (num_query_heads, num_rows) of kMergeThreads.
#include <metal_stdlib>

#include "backend/metal/kernels/arguments.h"
#include "backend/metal/kernels/common.h"

using namespace metal;
using namespace kipp_metal;

constant uint kQueryHeads [[function_constant(0)]];  // a multiple of kKvHeads; at most kKvHeads · kMaxQueryGroup

namespace {

constant constexpr uint kHeadElements = kPositionsPerBlock * kHeadWidth;
constant constexpr uint kLanesPerKey = 4;  // a simdgroup reads eight keys at a time, four lanes each
constant constexpr uint kKeysAtOnce = kSimdLanes / kLanesPerKey;

// What a simdgroup knows of its positions so far; lane l has elements 4l … 4l + 3 of the sums of values.
struct Running {
  float maximum[kMaxQueryGroup];
  float weights[kMaxQueryGroup];
  float4 values[kMaxQueryGroup];
};

// Which position of a block the score that ends up in a lane is of; and in which lane a position's score is.
uint position_of_lane(uint lane) { return lane % kLanesPerKey * kKeysAtOnce + lane / kLanesPerKey; }
ushort lane_of_position(uint position) {
  return ushort(position % kKeysAtOnce * kLanesPerKey + position / kKeysAtOnce);
}

float dot4(float4 a, float4 b, float sum) { return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum)))); }

// scores[h]: that of query head h and this lane's position; -infinity from `count` on. queries: [group][kHeadWidth], scaled.
void score_block(device const ushort* keys, threadgroup const float* queries, uint group, uint count, uint lane,
                 thread float* scores) {
  for (uint h = 0; h < group; ++h) scores[h] = -INFINITY;
  for (uint begin = 0; begin < kPositionsPerBlock; begin += kKeysAtOnce) {
    const uint position = begin + lane / kLanesPerKey;
    float sums[kMaxQueryGroup];
    for (uint h = 0; h < group; ++h) sums[h] = 0.0f;
    if (position < count) {
      for (uint chunk = lane % kLanesPerKey; chunk < kHeadWidth / 8; chunk += kLanesPerKey) {
        const uint4 words = *reinterpret_cast<device const uint4*>(keys + position * kHeadWidth + chunk * 8);
        const float4 low = widen4(uint2(words.x, words.y));
        const float4 high = widen4(uint2(words.z, words.w));
        for (uint h = 0; h < group; ++h) {
          threadgroup const float4* q = reinterpret_cast<threadgroup const float4*>(queries + h * kHeadWidth + chunk * 8);
          sums[h] = dot4(high, q[1], dot4(low, q[0], sums[h]));
        }
      }
    }
    for (uint h = 0; h < group; ++h) {
      float sum = sums[h];
      sum += simd_shuffle_xor(sum, ushort(2));
      sum += simd_shuffle_xor(sum, ushort(1));
      if (position < count && lane % kLanesPerKey == begin / kKeysAtOnce) scores[h] = sum;
    }
  }
}

void add_block(device const ushort* keys, device const ushort* values, threadgroup const float* queries, uint group,
               uint count, uint lane, thread Running& running) {
  float weights[kMaxQueryGroup];
  score_block(keys, queries, group, count, lane, weights);
  for (uint h = 0; h < group; ++h) {
    const float maximum = fmax(running.maximum[h], lane_max(weights[h]));
    const float before = exp(running.maximum[h] - maximum);
    weights[h] = position_of_lane(lane) < count ? exp(weights[h] - maximum) : 0.0f;
    running.weights[h] = running.weights[h] * before + lane_sum(weights[h]);
    running.values[h] = running.values[h] * before;
    running.maximum[h] = maximum;
  }
  for (uint position = 0; position < count; ++position) {
    const float4 value = widen4(*reinterpret_cast<device const uint2*>(values + position * kHeadWidth + lane * 4));
    for (uint h = 0; h < group; ++h) {
      const float weight = simd_shuffle(weights[h], lane_of_position(position));
      running.values[h].x = fma(weight, value.x, running.values[h].x);
      running.values[h].y = fma(weight, value.y, running.values[h].y);
      running.values[h].z = fma(weight, value.z, running.values[h].z);
      running.values[h].w = fma(weight, value.w, running.values[h].w);
    }
  }
}

// Adds what somebody else knows of later positions; factors are those of the common maximum.
float4 merged_factors(float maximum, float later_maximum) {
  const float common = fmax(maximum, later_maximum);
  const bool is_empty = common == -INFINITY;
  return float4(common, is_empty ? 0.0f : exp(maximum - common), is_empty ? 0.0f : exp(later_maximum - common), 0.0f);
}

// This simdgroup's positions begin … end - 1: whole blocks, every kDecodeSimdgroups-th one.
void attend(device const ushort* pool, device const int* table, constant AttentionDecodeArgs& args,
            threadgroup const float* queries, uint begin, uint end, uint kv_head, uint lane, thread Running& running) {
  const uint group = kQueryHeads / kKvHeads;
  for (uint h = 0; h < group; ++h) {
    running.maximum[h] = -INFINITY;
    running.weights[h] = 0.0f;
    running.values[h] = float4(0.0f);
  }
  for (uint first = begin; first < end; first += kDecodeSimdgroups * kPositionsPerBlock) {
    device const ushort* block = pool + ulong(table[first / kPositionsPerBlock]) * args.block_stride;
    add_block(block + kv_head * kHeadElements, block + (kKvHeads + kv_head) * kHeadElements, queries, group,
              min(kPositionsPerBlock, end - first), lane, running);
  }
}

}  // namespace

// partial_values: [num_rows][kQueryHeads][max_splits][kHeadWidth]; partial_stats: [num_rows][kQueryHeads][max_splits] of
// (maximum, sum of weights). Splits that begin above the row's position are left as they are.
kernel void kipp_attention_decode(
    device const float* q [[buffer(0)]],           // [num_rows][kQueryHeads][kHeadWidth], row stride q_stride
    device const ushort* pool [[buffer(1)]],       // of the layer's first block
    device const int* positions [[buffer(2)]],     // [num_rows]
    device const int* sequences [[buffer(3)]],     // [num_rows]
    device const int* block_tables [[buffer(4)]],  // [sequences][table_stride]
    device float* partial_values [[buffer(5)]], device float2* partial_stats [[buffer(6)]],
    constant AttentionDecodeArgs& args [[buffer(7)]], threadgroup float* scratch [[threadgroup(0)]],
    uint3 place [[threadgroup_position_in_grid]], uint index [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const uint kv_head = place.x;
  const uint split = place.y;
  const uint row = place.z;
  const uint end = min(uint(positions[row]) + 1, (split + 1) * kSplitPositions);
  const uint begin = split * kSplitPositions;
  if (begin >= end) return;  // the whole threadgroup
  const uint group = kQueryHeads / kKvHeads;
  threadgroup float* queries = scratch;
  threadgroup float* values = scratch + kMaxQueryGroup * kHeadWidth;  // [simdgroup][group][kHeadWidth]
  threadgroup float* stats = values + kDecodeSimdgroups * kMaxQueryGroup * kHeadWidth;  // [simdgroup][group][2]
  device const float* own = q + ulong(row) * args.q_stride + kv_head * group * kHeadWidth;
  const float scale = 1.0f / sqrt(float(kHeadWidth));
  for (uint i = index; i < group * kHeadWidth; i += kDecodeThreads) queries[i] = own[i] * scale;
  threadgroup_barrier(mem_flags::mem_threadgroup);

  Running running;
  attend(pool, block_tables + uint(sequences[row]) * args.table_stride, args, queries,
         begin + simdgroup * kPositionsPerBlock, end, kv_head, lane, running);
  for (uint h = 0; h < group; ++h) {
    const uint slot = simdgroup * kMaxQueryGroup + h;
    *reinterpret_cast<threadgroup float4*>(values + slot * kHeadWidth + lane * 4) = running.values[h];
    if (lane == 0) {
      stats[slot * 2] = running.maximum[h];
      stats[slot * 2 + 1] = running.weights[h];
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  // A thread an element of the head, kDecodeThreads of them.
  for (uint h = 0; h < group; ++h) {
    float maximum = -INFINITY;
    float weights = 0.0f;
    float value = 0.0f;
    for (uint s = 0; s < kDecodeSimdgroups; ++s) {
      const uint slot = s * kMaxQueryGroup + h;
      const float4 factors = merged_factors(maximum, stats[slot * 2]);
      weights = weights * factors.y + stats[slot * 2 + 1] * factors.z;
      value = value * factors.y + values[slot * kHeadWidth + index] * factors.z;
      maximum = factors.x;
    }
    const ulong part = (ulong(row) * kQueryHeads + kv_head * group + h) * args.max_splits + split;
    partial_values[part * kHeadWidth + index] = value;
    if (index == 0) partial_stats[part] = float2(maximum, weights);
  }
}

kernel void kipp_attention_merge(device const float* partial_values [[buffer(0)]],
                                 device const float2* partial_stats [[buffer(1)]],
                                 device const int* positions [[buffer(2)]],  // [num_rows]
                                 device float* out [[buffer(3)]],  // [num_rows][kQueryHeads][kHeadWidth], stride out_stride
                                 constant AttentionDecodeArgs& args [[buffer(4)]],
                                 uint2 place [[threadgroup_position_in_grid]],
                                 uint index [[thread_index_in_threadgroup]]) {
  const uint head = place.x;
  const uint row = place.y;
  const uint splits = uint(positions[row]) / kSplitPositions + 1;
  const ulong first = (ulong(row) * kQueryHeads + head) * args.max_splits;
  float maximum = -INFINITY;
  float weights = 0.0f;
  float value = 0.0f;
  for (uint split = 0; split < splits; ++split) {
    const float2 stats = partial_stats[first + split];
    const float4 factors = merged_factors(maximum, stats.x);
    weights = weights * factors.y + stats.y * factors.z;
    value = value * factors.y + partial_values[(first + split) * kHeadWidth + index] * factors.z;
    maximum = factors.x;
  }
  out[ulong(row) * args.out_stride + head * kHeadWidth + index] = value / weights;
}
