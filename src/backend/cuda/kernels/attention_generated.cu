// One block for each (row, kv head, chunk of positions). Keys and values are the rows of the matrix products and the
// group's query heads their (at most eight) columns, so that no part of a product is padding for the largest group:
// S^T = K q^T, O^T = V^T P^T. Each warp has tiles of 16 positions, a ring of copies and a softmax of its own; the
// warps' results are merged at the end, and those of several chunks by the block that finishes last, always in order.
#include "backend/cuda/kernels/attention_generated.h"

#include <algorithm>

#include "backend/cuda/kernels/attention_mma.cuh"
#include "backend/cuda/kernels/heads.cuh"
#include "backend/cuda/scales.h"

namespace kipp::cuda {
namespace {

constexpr int32_t kWarps = 4;
constexpr int32_t kThreads = kWarps * 32;
constexpr int32_t kStages = 3;
constexpr int32_t kTilePositions = 16;
constexpr int32_t kMaxGroup = 8;
constexpr int32_t kQueryTerms = 3;
constexpr int32_t kWeightTerms = 2;
constexpr uint32_t kTileBytes = kTilePositions * kRowBytes;  // of keys; as many of values follow
constexpr uint32_t kStageBytes = 2 * kTileBytes;
constexpr size_t kSharedBytes = size_t{kWarps} * kStages * kStageBytes;
constexpr int32_t kQueryStride = kHeadDim + 8;  // of heads in shared memory: all banks take part in reading them

// How a row's positions are cut depends on its own position only. Short contexts need no merging of chunks, long ones
// enough of them to occupy a device, and few enough for one block to merge.
struct ChunkRule {
  int32_t max_positions, chunk_positions;
};
constexpr ChunkRule kChunkRules[] = {{4096, 256}, {16384, 512}, {INT32_MAX, 1024}};
constexpr int32_t kMaxChunkBlocks = 1024 / kBlockPositions;
static_assert(kMaxChunkBlocks <= 32, "a lane holds one block's id");

__host__ __device__ constexpr int32_t chunk_positions_of(int32_t num_positions) {
  return num_positions <= kChunkRules[0].max_positions   ? kChunkRules[0].chunk_positions
         : num_positions <= kChunkRules[1].max_positions ? kChunkRules[1].chunk_positions
                                                         : kChunkRules[2].chunk_positions;
}

// The most chunks of any row with at most `max_context` positions.
int32_t max_chunks(int32_t max_context) {
  int32_t chunks = 0;
  for (const ChunkRule& rule : kChunkRules) {
    const int32_t positions = std::min(max_context, rule.max_positions);
    chunks = std::max(chunks, (positions - 1) / chunk_positions_of(positions) + 1);
  }
  return chunks;
}

size_t counters_bytes(int32_t max_rows) {
  return (static_cast<size_t>(max_rows) * kNumKvHeads * sizeof(uint32_t) + 255) / 256 * 256;
}

// The device's view of the arguments, with the workspace laid out.
struct Kernel {
  AttentionGeneratedArgs args;
  uint32_t* counters;  // [workspace_rows][kNumKvHeads]
  float4* values;      // [num_rows][kNumKvHeads][chunks][group][kHeadDim / 4]
  float2* sums;        // [num_rows][kNumKvHeads][chunks][group]
};

// A warp's share of the softmax: heads 2t and 2t + 1 of the group in each lane.
struct WarpState {
  float values[kHeadDim / 16][4];  // dimension 16 i + g (and + 8), head 2t (and 2t + 1)
  float max[2];
  float sum[2];  // of this lane's positions only
};

struct Chunk {
  int32_t first, end;  // positions
  int32_t block_id;    // lane i: of the chunk's i-th block
};

// q: [kGroup][stride].
template <int kGroup>
__device__ void load_query(uint32_t (&terms)[kHeadDim / 16][2][kQueryTerms], const float* q, int32_t stride,
                           int32_t lane) {
  const int32_t head = lane >> 2;
  const auto* row = reinterpret_cast<const float2*>(q + head * stride) + (lane & 3);
#pragma unroll
  for (int i = 0; i < kHeadDim / 16; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float2 pair = head < kGroup ? row[i * 8 + half * 4] : make_float2(0.0F, 0.0F);
      split_bf16(pair.x * kScoreScale, pair.y * kScoreScale, terms[i][half]);
    }
  }
}

// Keys and values of positions `first` to first + 15 (zeros past the chunk's end) to a stage of this warp's ring.
__device__ void copy_tile(uint32_t stage, const PagedKv& kv, const Chunk& chunk, int32_t kv_head, int32_t first,
                          int32_t lane) {
  const int64_t block = __shfl_sync(0xFFFFFFFFU, chunk.block_id, (first - chunk.first) / kBlockPositions);
  const uint16_t* keys =
      kv.pool + block * kv.block_stride + kv_head * kKvHeadElements + first % kBlockPositions * kHeadDim;
  const uint32_t column = static_cast<uint32_t>(lane) % kRowChunks;
#pragma unroll
  for (int i = 0; i < kTilePositions / 2; ++i) {
    const int32_t row = 2 * i + lane / static_cast<int32_t>(kRowChunks);
    const bool valid = first + row < chunk.end;
    const uint16_t* source = keys + row * kHeadDim + column * 8;
    const uint32_t target = stage + swizzled(static_cast<uint32_t>(row), column);
    copy_async(target, source, valid);
    copy_async(target + kTileBytes, source + kKvValuesOffset, valid);
  }
}

__device__ float max_over_positions(float value) {
#pragma unroll
  for (int offset = 4; offset < 32; offset *= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFU, value, offset));
  }
  return value;
}

__device__ float sum_over_positions(float value) {
#pragma unroll
  for (int offset = 4; offset < 32; offset *= 2) {
    value += __shfl_xor_sync(0xFFFFFFFFU, value, offset);
  }
  return value;
}

// scores: (position g, head 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1).
__device__ void score_tile(float (&scores)[4], uint32_t keys, const uint32_t (&query)[kHeadDim / 16][2][kQueryTerms],
                           uint32_t lane) {
  float sums[2][kQueryTerms][4] = {};  // of even and of odd steps: shorter chains
  const uint32_t row = lane & 15U;
#pragma unroll
  for (uint32_t i = 0; i < kHeadDim / 16; ++i) {
    uint32_t a[4];
    load_matrices(a, keys + swizzled(row, 2 * i + (lane >> 4)));
#pragma unroll
    for (int term = 0; term < kQueryTerms; ++term) {
      mma_bf16(sums[i % 2][term], a, query[i][0][term], query[i][1][term]);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    scores[i] = (sums[0][0][i] + sums[1][0][i]) + ((sums[0][1][i] + sums[1][1][i]) + (sums[0][2][i] + sums[1][2][i]));
  }
}

// Takes a tile with at least one valid position into the running softmax; `valid` positions count.
__device__ void add_tile(WarpState& state, uint32_t stage, const uint32_t (&query)[kHeadDim / 16][2][kQueryTerms],
                         int32_t valid, int32_t lane) {
  const auto unsigned_lane = static_cast<uint32_t>(lane);
  float weights[4];
  score_tile(weights, stage, query, unsigned_lane);
  float rescale[2];
#pragma unroll
  for (int head = 0; head < 2; ++head) {
    float& upper = weights[head];
    float& lower = weights[head + 2];
    upper = lane / 4 < valid ? upper : -INFINITY;
    lower = lane / 4 + 8 < valid ? lower : -INFINITY;
    const float max = fmaxf(state.max[head], max_over_positions(fmaxf(upper, lower)));
    rescale[head] = exp2_fast(state.max[head] - max);
    upper = exp2_fast(upper - max);
    lower = exp2_fast(lower - max);
    state.max[head] = max;
    state.sum[head] = fmaf(state.sum[head], rescale[head], upper + lower);
  }
  uint32_t terms[2][kWeightTerms];
  split_bf16(weights[0], weights[1], terms[0]);
  split_bf16(weights[2], weights[3], terms[1]);
#pragma unroll
  for (int term = 0; term < kWeightTerms; ++term) {
    terms[0][term] = transpose_matrix(terms[0][term]);
    terms[1][term] = transpose_matrix(terms[1][term]);
  }
  const uint32_t row = (unsigned_lane & 7U) + (unsigned_lane >> 4) * 8;
#pragma unroll
  for (uint32_t i = 0; i < kHeadDim / 16; ++i) {
    uint32_t a[4];
    load_matrices_transposed(a, stage + kTileBytes + swizzled(row, 2 * i + ((unsigned_lane >> 3) & 1U)));
    float(&values)[4] = state.values[i];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      values[j] *= rescale[j & 1];
    }
#pragma unroll
    for (int term = kWeightTerms - 1; term >= 0; --term) {
      mma_bf16(values, a, terms[0][term], terms[1][term]);
    }
  }
}

// The warps' results in shared memory, where their rings were.
struct Merge {
  static constexpr int32_t kHeadStride = kHeadDim + 4;  // eight dimensions of four heads lie in 32 banks
  float values[kWarps][kMaxGroup][kHeadStride];
  float max[kWarps][kMaxGroup];
  float sum[kWarps][kMaxGroup];
  bool last;
};
static_assert(sizeof(Merge) <= kSharedBytes);

__device__ void store_state(Merge& merge, const WarpState& state, int32_t warp, int32_t lane) {
  const int32_t head = 2 * (lane & 3);
  const int32_t dimension = lane >> 2;
#pragma unroll
  for (int i = 0; i < kHeadDim / 16; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      merge.values[warp][head + (j & 1)][16 * i + dimension + 8 * (j >> 1)] = state.values[i][j];
    }
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float sum = sum_over_positions(state.sum[i]);
    if (dimension == 0) {
      merge.max[warp][head + i] = state.max[i];
      merge.sum[warp][head + i] = sum;
    }
  }
}

// Four dimensions of one head, summed over positions with weights whose sum and largest exponent are `sum` and `max`.
struct Quad {
  float4 values;
  float sum, max;
};

__device__ void add_scaled(Quad& quad, const float4& values, float sum, float weight) {
  quad.sum = fmaf(sum, weight, quad.sum);
  quad.values.x = fmaf(values.x, weight, quad.values.x);
  quad.values.y = fmaf(values.y, weight, quad.values.y);
  quad.values.z = fmaf(values.z, weight, quad.values.z);
  quad.values.w = fmaf(values.w, weight, quad.values.w);
}

__device__ Quad merge_warps(const Merge& merge, int32_t head, int32_t dimension) {
  Quad quad{make_float4(0.0F, 0.0F, 0.0F, 0.0F), 0.0F, -INFINITY};
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) {
    quad.max = fmaxf(quad.max, merge.max[warp][head]);
  }
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) {
    const float weight = exp2_fast(merge.max[warp][head] - quad.max);  // zero for a warp without positions
    add_scaled(quad, *reinterpret_cast<const float4*>(&merge.values[warp][head][dimension]), merge.sum[warp][head],
               weight);
  }
  return quad;
}

__device__ void write_output(const AttentionGeneratedArgs& args, int64_t offset, const Quad& quad) {
  const float values[4] = {quad.values.x, quad.values.y, quad.values.z, quad.values.w};
  uint16_t high[4];
  uint16_t low[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float scaled = values[i] / quad.sum * kAttentionScale;
    const __half rounded = __float2half_rn(scaled);
    high[i] = __half_as_ushort(rounded);
    low[i] = __half_as_ushort(__float2half_rn(scaled - __half2float(rounded)));
  }
  *reinterpret_cast<ushort4*>(args.high + offset) = make_ushort4(high[0], high[1], high[2], high[3]);
  *reinterpret_cast<ushort4*>(args.low + offset) = make_ushort4(low[0], low[1], low[2], low[3]);
}

// Counts this block as finished, its partial results visible to the block that counts last, which gets true.
__device__ bool is_last(Merge& merge, uint32_t* counter, int32_t num_chunks) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();  // of all that the barrier has ordered before it
    merge.last = atomicAdd(counter, 1U) == static_cast<uint32_t>(num_chunks - 1);
    if (merge.last) {
      *counter = 0;
      __threadfence();
    }
  }
  __syncthreads();
  return merge.last;
}

// The chunks' partial results, a batch of them on the way at a time.
template <int kGroup>
__device__ Quad merge_chunks(const float2* sums, const float4* values, int32_t num_chunks, int32_t quad_index) {
  constexpr int32_t kBatch = 16;
  constexpr int32_t kQuads = kGroup * kHeadDim / 4;
  const int32_t head = quad_index / (kHeadDim / 4);
  Quad quad{make_float4(0.0F, 0.0F, 0.0F, 0.0F), 0.0F, -INFINITY};
  for (int32_t first = 0; first < num_chunks; first += kBatch) {
    float2 batch_sums[kBatch];
    float4 batch_values[kBatch];
    float max = quad.max;
#pragma unroll
    for (int32_t i = 0; i < kBatch; ++i) {
      const int32_t chunk = first + i;
      const bool valid = chunk < num_chunks;
      batch_sums[i] = valid ? __ldcg(sums + chunk * kGroup + head) : make_float2(-INFINITY, 0.0F);
      batch_values[i] = valid ? __ldcg(values + chunk * kQuads + quad_index) : make_float4(0.0F, 0.0F, 0.0F, 0.0F);
    }
#pragma unroll
    for (int32_t i = 0; i < kBatch; ++i) {
      max = fmaxf(max, batch_sums[i].x);
    }
    const Quad before = quad;
    quad = {make_float4(0.0F, 0.0F, 0.0F, 0.0F), 0.0F, max};
    add_scaled(quad, before.values, before.sum, exp2_fast(before.max - max));
#pragma unroll
    for (int32_t i = 0; i < kBatch; ++i) {
      add_scaled(quad, batch_values[i], batch_sums[i].y, exp2_fast(batch_sums[i].x - max));
    }
  }
  return quad;
}

// The norms of the heads that this block makes, read before the kernels before have ended.
struct HeadNorms {
  float query[kLaneElements], key[kLaneElements];
};

// The group's query heads to q [kGroup][kQueryStride] in shared memory, and, by the block of the row's last position,
// that position's K and V to the pool.
template <int kGroup>
__device__ void make_heads(float* q, const AttentionGeneratedArgs& args, const HeadNorms& norms, const Chunk& chunk,
                           bool is_last_chunk, int32_t lane) {
  const auto row = static_cast<int64_t>(blockIdx.z);
  const auto kv_head = static_cast<int32_t>(blockIdx.y);
  const int32_t num_heads = is_last_chunk ? kGroup + 2 : kGroup;
  for (int32_t h = static_cast<int32_t>(threadIdx.x / 32); h < num_heads; h += kWarps) {
    float x[kLaneElements];
    if (h < kGroup) {
      load_head(x, args.heads, row, kv_head * kGroup + h, &norms.query, lane);
#pragma unroll
      for (int32_t i = 0; i < kLaneElements; ++i) q[h * kQueryStride + lane + 32 * i] = x[i];
      continue;
    }
    const bool is_key = h == kGroup;
    load_head(x, args.heads, row, args.num_query_heads + kv_head + (is_key ? 0 : kNumKvHeads),
              is_key ? &norms.key : nullptr, lane);
    const int32_t position = chunk.end - 1;
    const int64_t block = __shfl_sync(0xFFFFFFFFU, chunk.block_id, (position - chunk.first) / kBlockPositions);
    // The pool is this kernel's to write where `heads` is given.
    store_head(const_cast<uint16_t*>(args.kv.pool) + block * args.kv.block_stride + kv_head * kKvHeadElements +
                   position % kBlockPositions * kHeadDim + (is_key ? 0 : kKvValuesOffset),
               x, lane);
  }
  __syncthreads();
}

// Merges the warps, and either writes the row's heads or leaves them to the block that finishes last.
template <int kGroup>
__device__ void finish(const Kernel& kernel, Merge& merge, int32_t num_chunks, int32_t max_chunks) {
  constexpr int32_t kQuads = kGroup * kHeadDim / 4;
  const auto row = static_cast<int64_t>(blockIdx.z);
  const auto kv_head = static_cast<int64_t>(blockIdx.y);
  const int64_t output = (row * kNumKvHeads + kv_head) * kGroup * kHeadDim;
  const int64_t partial = (row * kNumKvHeads + kv_head) * max_chunks;
  float4* values = kernel.values + partial * kQuads;
  float2* sums = kernel.sums + partial * kGroup;
  const auto chunk = static_cast<int32_t>(blockIdx.x);
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < kQuads; i += kThreads) {
    const int32_t head = i / (kHeadDim / 4);
    const int32_t dimension = i % (kHeadDim / 4) * 4;
    const Quad quad = merge_warps(merge, head, dimension);
    if (num_chunks == 1) {
      write_output(kernel.args, output + i * 4, quad);
      continue;
    }
    __stcg(values + chunk * kQuads + i, quad.values);
    if (dimension == 0) {
      __stcg(sums + chunk * kGroup + head, make_float2(quad.max, quad.sum));
    }
  }
  if (num_chunks == 1 || !is_last(merge, kernel.counters + row * kNumKvHeads + kv_head, num_chunks)) {
    return;
  }
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < kQuads; i += kThreads) {
    write_output(kernel.args, output + i * 4, merge_chunks<kGroup>(sums, values, num_chunks, i));
  }
}

template <int kGroup, bool kMakesHeads>
__global__ void __launch_bounds__(kThreads, 2) attention_generated_kernel(const Kernel kernel) {
  extern __shared__ __align__(128) uint8_t shared[];
  __shared__ __align__(16) float made_query[kMakesHeads ? kGroup * kQueryStride : 1];
  const AttentionGeneratedArgs& args = kernel.args;
  if (args.settled == nullptr) {
    wait_for_previous();
  }
  const int32_t num_positions = args.positions[blockIdx.z] + 1;
  const int32_t chunk_positions = chunk_positions_of(num_positions);
  Chunk chunk{};
  chunk.first = static_cast<int32_t>(blockIdx.x) * chunk_positions;
  chunk.end = min(chunk.first + chunk_positions, num_positions);
  if (chunk.first >= chunk.end) {
    wait_for_previous();  // that this kernel has ended says so of all before it
    return;
  }
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  const auto warp = static_cast<int32_t>(threadIdx.x / 32);
  const auto kv_head = static_cast<int32_t>(blockIdx.y);
  const int64_t table = int64_t{args.sequences[blockIdx.z]} * args.kv.table_stride;
  if (chunk.first + lane * kBlockPositions < chunk.end) {
    chunk.block_id = args.kv.block_tables[table + chunk.first / kBlockPositions + lane];
  }
  [[maybe_unused]] HeadNorms norms;
  if constexpr (kMakesHeads) {
    load_norm(norms.query, args.heads.query_norm, lane);
    load_norm(norms.key, args.heads.key_norm, lane);
  }
  const uint32_t ring = shared_address(shared) + static_cast<uint32_t>(warp * kStages) * kStageBytes;
  constexpr int32_t kStep = kWarps * kTilePositions;  // from a warp's tile to its next
  const int32_t start = chunk.first + warp * kTilePositions;
  const int32_t given = kMakesHeads ? num_positions - 1 : num_positions;
  const int32_t settled = args.settled == nullptr ? given : min(given, args.settled[blockIdx.z]);
  for (int32_t pass = 0; pass < 2; ++pass) {
    const bool early = pass == 0;
#pragma unroll
    for (int32_t i = 0; i < kStages; ++i) {
      const int32_t first = start + i * kStep;
      if (first < chunk.end && early == (min(first + kTilePositions, chunk.end) <= settled)) {
        copy_tile(ring + static_cast<uint32_t>(i) * kStageBytes, args.kv, chunk, kv_head, first, lane);
      }
      commit_copies();
    }
    if (!early) break;
    wait_for_previous();
    if constexpr (kMakesHeads) {
      make_heads<kGroup>(made_query, args, norms, chunk, chunk.end == num_positions, lane);
    }
  }
  start_next();
  uint32_t query[kHeadDim / 16][2][kQueryTerms];
  if constexpr (kMakesHeads) {
    load_query<kGroup>(query, made_query, kQueryStride, lane);
  } else {
    load_query<kGroup>(query, args.q + (int64_t{blockIdx.z} * kNumKvHeads + kv_head) * kGroup * kHeadDim, kHeadDim,
                       lane);
  }
  WarpState state{};
  state.max[0] = state.max[1] = -INFINITY;
  uint32_t stage = ring;
  for (int32_t first = start; first < chunk.end; first += kStep) {
    wait_copies<kStages - 1>();
    __syncwarp();
    add_tile(state, stage, query, chunk.end - first, lane);
    __syncwarp();
    if (const int32_t next = first + kStages * kStep; next < chunk.end) {
      copy_tile(stage, args.kv, chunk, kv_head, next, lane);
    }
    commit_copies();
    stage = stage + kStageBytes == ring + kStages * kStageBytes ? ring : stage + kStageBytes;
  }
  wait_copies<0>();
  __syncthreads();  // the rings become the place of merging
  auto& merge = *reinterpret_cast<Merge*>(shared);
  store_state(merge, state, warp, lane);
  __syncthreads();
  finish<kGroup>(kernel, merge, (num_positions - 1) / chunk_positions + 1, static_cast<int32_t>(gridDim.x));
}

template <int kGroup>
cudaError_t launch_group(const AttentionGeneratedArgs& args, const LaunchContext& context) {
  const auto kernel_of_group =
      args.heads.sums == nullptr ? attention_generated_kernel<kGroup, false> : attention_generated_kernel<kGroup, true>;
  const auto shared_bytes = static_cast<int>(kSharedBytes);
  const cudaError_t error =
      cudaFuncSetAttribute(kernel_of_group, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  if (error != cudaSuccess) {
    return error;
  }
  const int32_t chunks = max_chunks(args.max_context);
  auto* workspace = static_cast<uint8_t*>(args.workspace);
  auto* values = reinterpret_cast<float4*>(workspace + counters_bytes(args.workspace_rows));
  const int64_t num_values = int64_t{args.num_rows} * kNumKvHeads * chunks * kGroup * (kHeadDim / 4);
  const Kernel kernel{.args = args,
                      .counters = reinterpret_cast<uint32_t*>(workspace),
                      .values = values,
                      .sums = reinterpret_cast<float2*>(values + num_values)};
  const dim3 grid(static_cast<uint32_t>(chunks), kNumKvHeads, static_cast<uint32_t>(args.num_rows));
  return launch(kernel_of_group, {.grid = grid, .block = dim3(kThreads), .shared_bytes = kSharedBytes}, context,
                kernel);
}

}  // namespace

size_t attention_generated_workspace_bytes(int32_t max_rows, int32_t num_query_heads, int32_t max_context) {
  const size_t partials = static_cast<size_t>(max_rows) * static_cast<size_t>(num_query_heads) *
                          static_cast<size_t>(max_chunks(max_context));
  return counters_bytes(max_rows) + partials * (kHeadDim * sizeof(float) + sizeof(float2));
}

cudaError_t attention_generated(const AttentionGeneratedArgs& args, const LaunchContext& context) {
  if (args.max_context <= 0 || args.num_rows > args.workspace_rows) {
    return cudaErrorInvalidValue;
  }
  return for_query_group(args.num_query_heads, [&](auto group) { return launch_group<group.value>(args, context); });
}

}  // namespace kipp::cuda
