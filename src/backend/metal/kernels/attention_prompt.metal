// Causal attention of prompt rows over paged K and V. Contract: model/operators.h; places: PromptTile, AttentionPromptArgs.
// Blocks of 32 positions from position 0 on, in order, with a running maximum: a row's bits do not depend on the tile it is
// in, because blocks that it does not see add zeros. Everything is FP32. What does not exist (tokens, positions) is zero and
// never read. A row that is not finite may make the others of its eight not finite.
// Grid: (tiles, num_query_heads) threadgroups of kPromptThreads.
#include <metal_simdgroup_matrix>
#include <metal_stdlib>

#include "backend/metal/kernels/arguments.h"
#include "backend/metal/kernels/common.h"

using namespace metal;
using namespace kipp_metal;

constant uint kQueryHeads [[function_constant(0)]];  // a multiple of kKvHeads

namespace {

constant constexpr uint kHeadElements = kPositionsPerBlock * kHeadWidth;
constant constexpr uint kHeadTiles = kHeadWidth / 8;
constant constexpr uint kBlockTiles = kPositionsPerBlock / 8;
constant constexpr uint kLanesPerRow = 4;  // of scores: eight positions each
constant constexpr uint kQuads = kHeadWidth / 4;

// The tile's queries, scaled; tokens that there are not are zero.
void read_queries(device const float* q, uint q_stride, uint num_tokens, uint index, threadgroup float* to) {
  const float scale = 1.0f / sqrt(float(kHeadWidth));
  for (uint i = index; i < kPromptTokens * kQuads; i += kPromptThreads) {
    const uint token = i / kQuads;
    const uint quad = i % kQuads;
    float4 value = float4(0.0f);
    if (token < num_tokens) value = reinterpret_cast<device const float4*>(q + ulong(token) * q_stride)[quad] * scale;
    *reinterpret_cast<threadgroup float4*>(to + token * kPromptStride + quad * 4) = value;
  }
}

// One head's keys or values of a block, widened; positions from `count` on are zero.
void read_block(device const ushort* from, uint count, uint index, threadgroup float* to) {
  for (uint i = index; i < kPositionsPerBlock * kQuads; i += kPromptThreads) {
    const uint position = i / kQuads;
    const uint quad = i % kQuads;
    float4 value = float4(0.0f);
    if (position < count) value = widen4(reinterpret_cast<device const uint2*>(from + position * kHeadWidth)[quad]);
    *reinterpret_cast<threadgroup float4*>(to + position * kPromptStride + quad * 4) = value;
  }
}

// The scores of a simdgroup's eight tokens and a block's keys. scores: [8][kPromptScoreStride].
void multiply_keys(thread const simdgroup_float8x8* queries, threadgroup const float* keys, threadgroup float* scores) {
  for (uint j = 0; j < kBlockTiles; ++j) {
    simdgroup_float8x8 sum = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    for (uint d = 0; d < kHeadTiles; ++d) {
      simdgroup_float8x8 key;
      simdgroup_load(key, keys + j * 8 * kPromptStride + d * 8, kPromptStride, ulong2(0, 0), true);
      simdgroup_multiply_accumulate(sum, queries[d], key, sum);
    }
    simdgroup_store(sum, scores + j * 8, kPromptScoreStride);
  }
}

// A row of scores becomes weights, four lanes to the row; `visible` of the block's positions count. diagonal: [8][8], what
// the sums so far are multiplied by.
void weigh(threadgroup float* scores, threadgroup float* diagonal, uint visible, uint lane, thread float& maximum,
           thread float& weights) {
  const uint row = lane / kLanesPerRow;
  const uint part = lane % kLanesPerRow;
  threadgroup float* own = scores + row * kPromptScoreStride + part * 8;
  float largest = maximum;
  for (uint i = 0; i < 8; ++i) {
    if (part * 8 + i < visible) largest = fmax(largest, own[i]);
  }
  largest = fmax(largest, simd_shuffle_xor(largest, ushort(1)));
  largest = fmax(largest, simd_shuffle_xor(largest, ushort(2)));
  float sum = 0.0f;
  for (uint i = 0; i < 8; ++i) {
    const float weight = part * 8 + i < visible ? exp(own[i] - largest) : 0.0f;
    own[i] = weight;
    sum += weight;
  }
  sum += simd_shuffle_xor(sum, ushort(1));
  sum += simd_shuffle_xor(sum, ushort(2));
  const float before = exp(maximum - largest);
  weights = weights * before + sum;
  maximum = largest;
  for (uint column = part * 2; column < part * 2 + 2; ++column) diagonal[row * 8 + column] = column == row ? before : 0.0f;
}

void multiply_values(threadgroup const float* weights, threadgroup const float* diagonal,
                     threadgroup const float* values, thread simdgroup_float8x8* sums) {
  simdgroup_float8x8 before;
  simdgroup_float8x8 own[kBlockTiles];
  simdgroup_load(before, diagonal, 8);
  for (uint j = 0; j < kBlockTiles; ++j) simdgroup_load(own[j], weights + j * 8, kPromptScoreStride);
  for (uint d = 0; d < kHeadTiles; ++d) {
    simdgroup_float8x8 sum;
    simdgroup_multiply(sum, before, sums[d]);
    for (uint j = 0; j < kBlockTiles; ++j) {
      simdgroup_float8x8 value;
      simdgroup_load(value, values + j * 8 * kPromptStride + d * 8, kPromptStride);
      simdgroup_multiply_accumulate(sum, own[j], value, sum);
    }
    sums[d] = sum;
  }
}

}  // namespace

kernel void kipp_attention_prompt(
    device const float* q [[buffer(0)]],           // [rows][kQueryHeads][kHeadWidth], row stride q_stride
    device const ushort* pool [[buffer(1)]],       // of the layer's first block
    device const PromptTile* tiles [[buffer(2)]],  // [tiles]
    device const int* block_tables [[buffer(3)]],  // [sequences][table_stride]
    device float* out [[buffer(4)]],               // [rows][kQueryHeads][kHeadWidth], row stride out_stride
    constant AttentionPromptArgs& args [[buffer(5)]], threadgroup float* scratch [[threadgroup(0)]],
    uint2 place [[threadgroup_position_in_grid]], uint index [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const PromptTile tile = tiles[place.x];
  const uint head = place.y;
  const uint kv_head = head / (kQueryHeads / kKvHeads);
  device const int* table = block_tables + tile.sequence * args.table_stride;
  threadgroup float* shared = scratch;  // queries, keys or values: [32][kPromptStride]
  threadgroup float* scores = scratch + kPositionsPerBlock * kPromptStride + simdgroup * 8 * kPromptScoreStride;
  threadgroup float* diagonal =
      scratch + kPositionsPerBlock * kPromptStride + kPromptTokens * kPromptScoreStride + simdgroup * 64;

  read_queries(q + ulong(tile.first_row) * args.q_stride + head * kHeadWidth, args.q_stride, tile.num_tokens, index,
               shared);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  simdgroup_float8x8 queries[kHeadTiles];
  simdgroup_float8x8 sums[kHeadTiles];
  for (uint d = 0; d < kHeadTiles; ++d) {
    simdgroup_load(queries[d], shared + simdgroup * 8 * kPromptStride + d * 8, kPromptStride);
    sums[d] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  }
  const uint end = tile.first_position + tile.num_tokens;
  const uint own_token = simdgroup * 8 + lane / kLanesPerRow;
  const uint own_end = tile.first_position + own_token + 1;  // positions that this lane's row sees
  float maximum = -INFINITY;
  float weights = 0.0f;
  for (uint first = 0; first < end; first += kPositionsPerBlock) {
    device const ushort* block = pool + ulong(table[first / kPositionsPerBlock]) * args.block_stride;
    const uint count = min(kPositionsPerBlock, end - first);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    read_block(block + kv_head * kHeadElements, count, index, shared);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    multiply_keys(queries, shared, scores);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    weigh(scores, diagonal, own_end > first ? min(count, own_end - first) : 0u, lane, maximum, weights);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    read_block(block + (kKvHeads + kv_head) * kHeadElements, count, index, shared);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    multiply_values(scores, diagonal, shared, sums);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  threadgroup float* rows = shared + simdgroup * 8 * kPromptStride;
  for (uint d = 0; d < kHeadTiles; ++d) simdgroup_store(sums[d], rows + d * 8, kPromptStride);
  simdgroup_barrier(mem_flags::mem_threadgroup);
  if (own_token >= tile.num_tokens) return;
  device float* own_out = out + ulong(tile.first_row + own_token) * args.out_stride + head * kHeadWidth;
  for (uint quad = lane % kLanesPerRow; quad < kQuads; quad += kLanesPerRow) {
    const float4 sum =
        *reinterpret_cast<threadgroup const float4*>(rows + lane / kLanesPerRow * kPromptStride + quad * 4);
    // A sum that came to -0 in one tile may come to 0 in another, to which zeros were added.
    reinterpret_cast<device float4*>(own_out)[quad] = sum / weights + 0.0f;
  }
}
