// One block for each (row, kv head, chunk of positions). Keys and values are the rows of the matrix products and the
// group's query heads their (at most eight) columns, so that no part of a product is padding for the largest group:
// S^T = K q^T, O^T = V^T P^T. Each warp has tiles of 16 positions, a ring of copies and a softmax of its own; the
// warps' results are merged at the end, and those of several chunks by the block that finishes last, always in order.
#include "backend/cuda/kernels/attention_generated.h"

#include <algorithm>

#include "backend/cuda/kernels/attention_merge.cuh"
#include "backend/cuda/kernels/attention_tiles.cuh"
#include "backend/cuda/kernels/heads.cuh"

namespace kipp::cuda {
namespace {

constexpr int32_t kWarps = kAttentionWarps;
constexpr int32_t kThreads = kWarps * 32;
constexpr int32_t kStages = 3;
constexpr size_t kSharedBytes = size_t{kWarps} * kStages * kStageBytes;
constexpr int32_t kQueryStride = kHeadDim + 8;  // of heads in shared memory: all banks take part in reading them
static_assert(sizeof(Merge) <= kSharedBytes, "it takes the rings' place");

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
    store_head(args.new_kv + block * args.kv.block_stride + kv_head * kKvHeadElements +
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

// The part of a row's positions that this block takes; first >= end: none.
__device__ Chunk chunk_of_block(const AttentionGeneratedArgs& args, int32_t num_positions, int32_t lane) {
  const int32_t chunk_positions = chunk_positions_of(num_positions);
  Chunk chunk{};
  chunk.first = static_cast<int32_t>(blockIdx.x) * chunk_positions;
  chunk.end = min(chunk.first + chunk_positions, num_positions);
  const int64_t table = int64_t{args.sequences[blockIdx.z]} * args.kv.table_stride;
  if (chunk.first + lane * kBlockPositions < chunk.end) {
    chunk.block_id = args.kv.block_tables[table + chunk.first / kBlockPositions + lane];
  }
  return chunk;
}

// A warp's ring of stages: it takes every kWarps-th tile of the chunk.
struct WarpRing {
  static constexpr int32_t kStep = kWarps * kTilePositions;  // from a warp's tile to its next
  uint32_t address;
  int32_t start;  // position of the warp's first tile

  // The first tiles: those below position `settled`, or the others.
  __device__ void fill(const PagedKv& kv, const Chunk& chunk, int32_t settled, bool below, int32_t lane) const {
    const auto kv_head = static_cast<int32_t>(blockIdx.y);
#pragma unroll
    for (int32_t i = 0; i < kStages; ++i) {
      const int32_t first = start + i * kStep;
      if (first < chunk.end && below == (min(first + kTilePositions, chunk.end) <= settled)) {
        copy_tile(address + static_cast<uint32_t>(i) * kStageBytes, kv, chunk, kv_head, first, lane);
      }
      commit_copies();
    }
  }

  // Takes all tiles into the softmax.
  __device__ void drain(WarpState& state, const PagedKv& kv, const Chunk& chunk,
                        const uint32_t (&query)[kHeadDim / 16][2][kTerms], int32_t lane) const {
    const auto kv_head = static_cast<int32_t>(blockIdx.y);
    uint32_t stage = address;
    for (int32_t first = start; first < chunk.end; first += kStep) {
      wait_copies<kStages - 1>();
      __syncwarp();
      add_tile(state, stage, query, chunk.end - first, lane);
      __syncwarp();
      if (const int32_t next = first + kStages * kStep; next < chunk.end) {
        copy_tile(stage, kv, chunk, kv_head, next, lane);
      }
      commit_copies();
      stage = stage + kStageBytes == address + kStages * kStageBytes ? address : stage + kStageBytes;
    }
    wait_copies<0>();
  }
};

template <int kGroup, bool kMakesHeads>
__global__ void __launch_bounds__(kThreads, 2) attention_generated_kernel(const Kernel kernel) {
  extern __shared__ __align__(128) uint8_t shared[];
  __shared__ __align__(16) float made_query[kMakesHeads ? kGroup * kQueryStride : 1];
  const AttentionGeneratedArgs& args = kernel.args;
  if (args.settled == nullptr) {
    wait_for_previous();
  }
  const int32_t num_positions = args.positions[blockIdx.z] + 1;
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  const auto warp = static_cast<int32_t>(threadIdx.x / 32);
  const Chunk chunk = chunk_of_block(args, num_positions, lane);
  if (chunk.first >= chunk.end) {
    wait_for_previous();  // that this kernel has ended says so of all before it
    return;
  }
  [[maybe_unused]] HeadNorms norms;
  if constexpr (kMakesHeads) {
    load_norm(norms.query, args.heads.query_norm, lane);
    load_norm(norms.key, args.heads.key_norm, lane);
  }
  const WarpRing ring{shared_address(shared) + static_cast<uint32_t>(warp * kStages) * kStageBytes,
                      chunk.first + warp * kTilePositions};
  const int32_t given = kMakesHeads ? num_positions - 1 : num_positions;
  const int32_t settled = args.settled == nullptr ? given : min(given, args.settled[blockIdx.z]);
  ring.fill(args.kv, chunk, settled, true, lane);
  wait_for_previous();
  if constexpr (kMakesHeads) {
    make_heads<kGroup>(made_query, args, norms, chunk, chunk.end == num_positions, lane);
  }
  ring.fill(args.kv, chunk, settled, false, lane);
  start_next();
  uint32_t query[kHeadDim / 16][2][kTerms];
  if constexpr (kMakesHeads) {
    load_query<kGroup>(query, made_query, kQueryStride, lane);
  } else {
    const int64_t head = (int64_t{blockIdx.z} * kNumKvHeads + blockIdx.y) * kGroup;
    load_query<kGroup>(query, args.q + head * kHeadDim, kHeadDim, lane);
  }
  WarpState state{};
  state.max[0] = state.max[1] = -INFINITY;
  ring.drain(state, args.kv, chunk, query, lane);
  __syncthreads();  // the rings become the place of merging
  auto& merge = *reinterpret_cast<Merge*>(shared);
  store_state(merge, state, warp, lane);
  __syncthreads();
  finish<kGroup>(kernel, merge, (num_positions - 1) / chunk_positions_of(num_positions) + 1,
                 static_cast<int32_t>(gridDim.x));
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
  const bool has_pool = args.heads.sums == nullptr || args.new_kv == args.kv.pool;
  if (args.max_context <= 0 || args.num_rows > args.workspace_rows || !has_pool) {
    return cudaErrorInvalidValue;
  }
  return for_query_group(args.num_query_heads, [&](auto group) { return launch_group<group.value>(args, context); });
}

}  // namespace kipp::cuda
