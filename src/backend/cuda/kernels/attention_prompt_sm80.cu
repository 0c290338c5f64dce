// Flash attention with mma.sync. One block for each (tile of tokens, kv head): the tile's tokens times the group's
// query heads are the 128 rows of its matrix products, 32 for each warp. Keys and values come in tiles of 64 positions
// from position 0 on. A tile above a row's own position changes nothing of that row: its weights are zero and its scale
// is one.
#include "backend/cuda/kernels/attention_prompt_variants.h"

#include "backend/cuda/kernels/attention_mma.cuh"
#include "backend/cuda/scales.h"

namespace kipp::cuda {
namespace {

constexpr int32_t kWarps = 4;
constexpr int32_t kThreads = kWarps * 32;
constexpr int32_t kRows = 128;
constexpr int32_t kRowTiles = kRows / kWarps / 16;  // of a warp: 16 rows each
constexpr int32_t kTilePositions = 64;
constexpr uint32_t kQueryBytes = kRows * kRowBytes;
constexpr uint32_t kTileBytes = kTilePositions * kRowBytes;  // of keys; as many of values follow
constexpr uint32_t kStageBytes = 2 * kTileBytes;
constexpr uint32_t kSharedBytes = kQueryBytes + 2 * kStageBytes;
constexpr int32_t kThreadChunks = kTilePositions * static_cast<int32_t>(kRowChunks) / kThreads;

using Scores = float[kRowTiles][kTilePositions / 8][4];
using Values = float[kRowTiles][kHeadDim / 8][4];

// Rows g and g + 8 of each row tile; the lanes of a row hold sums over their own columns.
struct Softmax {
  float max[kRowTiles][2];
  float sum[kRowTiles][2];
};

// The tile's queries as FP16 rows in shared memory, zeros for rows past its end.
template <int kGroup>
__device__ void load_queries(uint8_t* queries, const AttentionPromptArgs& args, const PromptTile& tile,
                             int32_t kv_head) {
  constexpr int32_t kQuads = kHeadDim / 4;
  for (auto i = static_cast<int32_t>(threadIdx.x); i < kRows * kQuads; i += kThreads) {
    const int32_t row = i / kQuads;
    const int32_t quad = i % kQuads;
    const int32_t token = row / kGroup;
    float4 values = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
    if (token < tile.num_tokens) {
      const int64_t head = (int64_t{tile.first_row} + token) * args.num_query_heads + kv_head * kGroup + row % kGroup;
      values = reinterpret_cast<const float4*>(args.q + head * kHeadDim)[quad];
    }
    const uint2 packed = make_uint2(pack_fp16(values.x * kScoreScale, values.y * kScoreScale),
                                    pack_fp16(values.z * kScoreScale, values.w * kScoreScale));
    const uint32_t offset = swizzled(static_cast<uint32_t>(row), static_cast<uint32_t>(quad) / 2);
    *reinterpret_cast<uint2*>(queries + offset + quad % 2 * 8) = packed;
  }
}

// Where a thread's part of a tile of keys (or values) lies: chunk threadIdx.x % 16 of every eighth row.
__device__ uint32_t chunk_offset(int32_t i) {
  const uint32_t row = threadIdx.x / kRowChunks + static_cast<uint32_t>(i) * (kThreads / kRowChunks);
  return swizzled(row, threadIdx.x % kRowChunks);
}

// Keys and values of positions first to first + 63; zeros from `end` on.
__device__ void copy_tile(uint32_t stage, const PagedKv& kv, const int32_t* table, int32_t kv_head, int32_t first,
                          int32_t end) {
  constexpr int32_t kTileBlocks = kTilePositions / kBlockPositions;
  const int32_t column = static_cast<int32_t>(threadIdx.x % kRowChunks) * 8;
  const uint16_t* blocks[kTileBlocks];
#pragma unroll
  for (int b = 0; b < kTileBlocks; ++b) {
    const bool valid = first + b * kBlockPositions < end;
    const int64_t block = valid ? table[first / kBlockPositions + b] : 0;
    blocks[b] = kv.pool + block * kv.block_stride + kv_head * kKvHeadElements + column;
  }
#pragma unroll
  for (int i = 0; i < kThreadChunks; ++i) {
    const int32_t row = static_cast<int32_t>(threadIdx.x / kRowChunks) + i * (kThreads / static_cast<int>(kRowChunks));
    const uint16_t* source = blocks[i / (kThreadChunks / kTileBlocks)] + row % kBlockPositions * kHeadDim;
    const bool valid = first + row < end;
    const uint32_t target = stage + chunk_offset(i);
    copy_async(target, source, valid);
    copy_async(target + kTileBytes, source + kKvValuesOffset, valid);
  }
}

__device__ void score_tile(Scores& scores, uint32_t queries, uint32_t keys, uint32_t warp, uint32_t lane) {
  const uint32_t query_row = warp * (kRows / kWarps) + (lane & 15U);
  const uint32_t key_row = (lane & 7U) + (lane >> 4) * 8;
#pragma unroll
  for (uint32_t k = 0; k < kHeadDim / 16; ++k) {
    uint32_t a[kRowTiles][4];
#pragma unroll
    for (uint32_t m = 0; m < kRowTiles; ++m) {
      load_matrices(a[m], queries + swizzled(query_row + m * 16, 2 * k + (lane >> 4)));
    }
#pragma unroll
    for (uint32_t n = 0; n < kTilePositions / 16; ++n) {
      uint32_t b[4];
      load_matrices(b, keys + swizzled(key_row + n * 16, 2 * k + ((lane >> 3) & 1U)));
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        mma_fp16(scores[m][2 * n], a[m], b[0], b[1]);
        mma_fp16(scores[m][2 * n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

// Scores of positions above the row's own become minus infinity.
template <int kGroup>
__device__ void mask_tile(Scores& scores, int32_t first_position, int32_t first, uint32_t warp, uint32_t lane) {
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int32_t row = static_cast<int32_t>(warp * (kRows / kWarps) + lane / 4) + m * 16 + half * 8;
      const int32_t last = first_position + row / kGroup - first - static_cast<int32_t>(lane % 4) * 2;
#pragma unroll
      for (int n = 0; n < kTilePositions / 8; ++n) {
        float(&pair)[4] = scores[m][n];
        pair[2 * half] = n * 8 <= last ? pair[2 * half] : -INFINITY;
        pair[2 * half + 1] = n * 8 + 1 <= last ? pair[2 * half + 1] : -INFINITY;
      }
    }
  }
}

// Turns scores into weights relative to the running maximum; rescales what was summed before.
__device__ void weigh_tile(Scores& scores, Softmax& softmax, Values& values) {
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float max = softmax.max[m][half];
#pragma unroll
      for (int n = 0; n < kTilePositions / 8; ++n) {
        max = fmaxf(max, fmaxf(scores[m][n][2 * half], scores[m][n][2 * half + 1]));
      }
      max = max_over_columns(max);
      const float rescale = exp2_fast(softmax.max[m][half] - max);
      softmax.max[m][half] = max;
      float sum = 0.0F;
#pragma unroll
      for (int n = 0; n < kTilePositions / 8; ++n) {
#pragma unroll
        for (int j = 2 * half; j < 2 * half + 2; ++j) {
          scores[m][n][j] = exp2_fast(scores[m][n][j] - max);
          sum += scores[m][n][j];
        }
      }
      softmax.sum[m][half] = fmaf(softmax.sum[m][half], rescale, sum);
#pragma unroll
      for (int n = 0; n < kHeadDim / 8; ++n) {
        values[m][n][2 * half] *= rescale;
        values[m][n][2 * half + 1] *= rescale;
      }
    }
  }
}

__device__ void add_values(Values& sums, const Scores& weights, uint32_t values, uint32_t lane) {
  const uint32_t row = lane & 15U;
#pragma unroll
  for (uint32_t k = 0; k < kTilePositions / 16; ++k) {
    uint32_t a[kRowTiles][4];
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float* pair = weights[m][2 * k + j / 2] + j % 2 * 2;
        a[m][j] = pack_fp16(pair[0], pair[1]);
      }
    }
#pragma unroll
    for (uint32_t n = 0; n < kHeadDim / 16; ++n) {
      uint32_t b[4];
      load_matrices_transposed(b, values + swizzled(row + k * 16, 2 * n + (lane >> 4)));
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        mma_fp16(sums[m][2 * n], a[m], b[0], b[1]);
        mma_fp16(sums[m][2 * n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

template <int kGroup>
__device__ void write_output(const AttentionPromptArgs& args, const PromptTile& tile, const Values& values,
                             const Softmax& softmax, uint32_t warp, uint32_t lane) {
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float scale = kAttentionScale / sum_over_columns(softmax.sum[m][half]);
      const int32_t row = static_cast<int32_t>(warp * (kRows / kWarps) + lane / 4) + m * 16 + half * 8;
      const int32_t token = row / kGroup;
      if (token >= tile.num_tokens) {
        continue;
      }
      const int32_t head = static_cast<int32_t>(blockIdx.x) * kGroup + row % kGroup;
      const int64_t offset = ((int64_t{tile.first_row} + token) * args.num_query_heads + head) * kHeadDim;
      auto* out = reinterpret_cast<uint32_t*>(args.high + offset) + lane % 4;
#pragma unroll
      for (int n = 0; n < kHeadDim / 8; ++n) {
        out[n * 4] = pack_fp16(values[m][n][2 * half] * scale, values[m][n][2 * half + 1] * scale);
      }
    }
  }
}

template <int kGroup>
__global__ void __launch_bounds__(kThreads, 2) attention_prompt_sm80_kernel(const AttentionPromptArgs args) {
  extern __shared__ __align__(128) uint8_t shared[];
  wait_for_previous();
  start_next();
  const PromptTile tile = args.tiles[blockIdx.y];
  const auto kv_head = static_cast<int32_t>(blockIdx.x);
  const int32_t* table = args.kv.block_tables + int64_t{tile.sequence} * args.kv.table_stride;
  const int32_t end = tile.first_position + tile.num_tokens;
  uint8_t* stages = shared + kQueryBytes;
  copy_tile(shared_address(stages), args.kv, table, kv_head, 0, end);
  commit_copies();
  load_queries<kGroup>(shared, args, tile, kv_head);
  const uint32_t warp = threadIdx.x / 32;
  const uint32_t lane = threadIdx.x % 32;
  Values values = {};
  Softmax softmax = {};
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
    softmax.max[m][0] = softmax.max[m][1] = -INFINITY;
  }
  uint32_t stage = 0;
  for (int32_t first = 0; first < end; first += kTilePositions) {
    wait_copies<0>();
    __syncthreads();
    if (first + kTilePositions < end) {  // all warps have left the other stage
      copy_tile(shared_address(stages + (stage ^ kStageBytes)), args.kv, table, kv_head, first + kTilePositions, end);
      commit_copies();
    }
    Scores scores = {};
    score_tile(scores, shared_address(shared), shared_address(stages + stage), warp, lane);
    if (first + kTilePositions - 1 > tile.first_position) {
      mask_tile<kGroup>(scores, tile.first_position, first, warp, lane);
    }
    weigh_tile(scores, softmax, values);
    add_values(values, scores, shared_address(stages + stage) + kTileBytes, lane);
    stage ^= kStageBytes;
  }
  write_output<kGroup>(args, tile, values, softmax, warp, lane);
}

template <int kGroup>
cudaError_t launch_group(const AttentionPromptArgs& args, const LaunchContext& context) {
  const cudaError_t error = cudaFuncSetAttribute(attention_prompt_sm80_kernel<kGroup>,
                                                 cudaFuncAttributeMaxDynamicSharedMemorySize, int{kSharedBytes});
  if (error != cudaSuccess) {
    return error;
  }
  const dim3 grid(kNumKvHeads, static_cast<uint32_t>(args.num_tiles));  // a tile's heads one after the other
  return launch(attention_prompt_sm80_kernel<kGroup>,
                {.grid = grid, .block = dim3(kThreads), .shared_bytes = kSharedBytes}, context, args);
}

}  // namespace

cudaError_t attention_prompt_sm80(const AttentionPromptArgs& args, const LaunchContext& context) {
  return for_query_group(args.num_query_heads, [&](auto group) { return launch_group<group.value>(args, context); });
}

}  // namespace kipp::cuda
