// Flash attention for Hopper: two warpgroups of consumers with 64 rows each (tokens times query heads of the group) and
// a warp that has the copy engine fetch tiles of 128 keys or values. A consumer's scores of the next tile and its sum
// of the last are computed while it takes exponentials. Tiles begin at multiples of 128 positions; one above a row's
// own position changes nothing of that row: its weights are zero and its scale is one.
#include "backend/cuda/kernels/attention_prompt_variants.h"

#include "backend/cuda/kernels/attention_wgmma.cuh"
#include "backend/cuda/kernels/tensor_map.h"
#include "backend/cuda/scales.h"

namespace kipp::cuda {
namespace {

constexpr int32_t kConsumers = 2;  // warpgroups
constexpr int32_t kThreads = (kConsumers + 1) * 128;
constexpr int32_t kTilePositions = 128;
constexpr uint32_t kSlots = 6;                               // for tiles: three of keys and three of values
constexpr uint32_t kQueryHalfBytes = 64 * kSwizzleRowBytes;  // 64 rows, half of their dimensions
constexpr uint32_t kHalfBytes = kTilePositions * kSwizzleRowBytes;
constexpr uint32_t kTileBytes = 2 * kHalfBytes;
constexpr uint32_t kQueriesOffset = kSlots * kTileBytes;
constexpr uint32_t kBarriersOffset = kQueriesOffset + kConsumers * 2 * kQueryHalfBytes;
constexpr uint32_t kNumBarriers = 2 * kSlots + 1;
constexpr uint32_t kSharedBytes = kBarriersOffset + kNumBarriers * sizeof(uint64_t) + kSwizzleAtomBytes;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

constexpr uint32_t kBoxBytes = kBlockPositions * kSwizzleRowBytes;  // of a block, half of the dimensions
constexpr uint32_t kProducerRegisters = 24;
constexpr uint32_t kConsumerRegisters = 240;
constexpr uint32_t kLaunchRegisters = 65536 / kThreads / 8 * 8;  // of a thread, at first: what there is to share out
static_assert(kProducerRegisters + kConsumers * kConsumerRegisters <= (kConsumers + 1) * kLaunchRegisters,
              "taking more than there is waits for ever");

// Where tiles and their barriers lie in shared memory. Item 2 i is the i-th tile of keys, 2 i + 1 that of values.
struct Ring {
  uint32_t base;  // aligned to kSwizzleAtomBytes

  __device__ static uint32_t parity(uint32_t item) { return item / kSlots & 1U; }
  __device__ uint32_t tile(uint32_t item) const { return base + item % kSlots * kTileBytes; }
  __device__ uint32_t full(uint32_t item) const { return base + kBarriersOffset + item % kSlots * 8; }
  __device__ uint32_t empty(uint32_t item) const { return full(item) + kSlots * 8; }
  __device__ uint32_t tail() const { return base + kBarriersOffset + 2 * kSlots * 8; }
};

// Chunk `chunk` (of 16) of row `row` of a tile, whose halves of 64 dimensions are `half_bytes` apart.
__device__ uint32_t chunk_offset(uint32_t row, uint32_t chunk, uint32_t half_bytes) {
  return chunk / 8 * half_bytes + row * kSwizzleRowBytes + ((chunk % 8 ^ (row & 7U)) << 4);
}

// Tiles of one kv head of one sequence, up to position `end`.
struct Source {
  const CUtensorMap& map;
  const int32_t* table;
  int32_t kv_head, end;

  __device__ int32_t rows(uint32_t item) const {
    return min(kTilePositions, end - static_cast<int32_t>(item / 2) * kTilePositions);
  }
};

// Has an item's blocks fetched, as far as they hold positions below `end`; one thread calls it. `arrived` counts them.
__device__ void fetch(const Ring& ring, const Source& source, uint32_t item, uint32_t arrived) {
  constexpr int32_t kTileBlocks = kTilePositions / kBlockPositions;
  const int32_t num_blocks = (source.rows(item) + kBlockPositions - 1) / kBlockPositions;
  const int32_t* table = source.table + item / 2 * kTileBlocks;
  const int32_t row = (static_cast<int32_t>(item % 2) * kNumKvHeads + source.kv_head) * kBlockPositions;
  arrive_expecting(arrived, static_cast<uint32_t>(num_blocks) * 2 * kBoxBytes);
  for (int32_t b = 0; b < num_blocks; ++b) {
    const int32_t block = table[b];
    const uint32_t to = ring.tile(item) + static_cast<uint32_t>(b) * kBoxBytes;
    copy_box(to, source.map, 0, row, block, arrived);
    copy_box(to + kHalfBytes, source.map, kHeadDim / 2, row, block, arrived);
  }
}

// Values past the end become zeros: no weight would make nothing of a NaN. Scores past it are masked.
__device__ void clear_rows(uint32_t tile, int32_t first) {
  for (auto row = static_cast<uint32_t>(first) + threadIdx.x / kRowChunks; row < kTilePositions; row += 2) {
    store_shared(tile + chunk_offset(row, threadIdx.x % kRowChunks, kHalfBytes), make_uint4(0, 0, 0, 0));
  }
  fence_for_engines();
  __syncwarp();
}

// What the first warp does.
__device__ void produce(const Ring& ring, const Source& source) {
  const auto num_items = 2 * static_cast<uint32_t>((source.end + kTilePositions - 1) / kTilePositions);
  for (uint32_t item = 0; item < num_items; ++item) {
    wait_phase(ring.empty(item), ring.parity(item) ^ 1U);
    const bool has_tail = item % 2 == 1 && source.rows(item) < kTilePositions;
    if (threadIdx.x == 0) fetch(ring, source, item, has_tail ? ring.tail() : ring.full(item));
    __syncwarp();
    if (has_tail) {  // the last one
      wait_phase(ring.tail(), 0);
      clear_rows(ring.tile(item), source.rows(item));
      if (threadIdx.x == 0) arrive(ring.full(item));
    }
  }
}

// A consumer's 64 rows of queries as FP16; zeros for rows past the end of the tile of tokens.
template <int kGroup>
__device__ void load_queries(uint32_t queries, const AttentionPromptArgs& args, const PromptTile& tile,
                             int32_t first_row, int32_t thread) {
  const auto chunk = static_cast<uint32_t>(thread) % kRowChunks;
#pragma unroll 4
  for (int32_t i = thread / static_cast<int32_t>(kRowChunks); i < 64; i += 8) {
    const int32_t row = first_row + i;
    const int32_t token = row / kGroup;
    float4 low = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
    float4 high = low;
    if (token < tile.num_tokens) {
      const int64_t head =
          (int64_t{tile.first_row} + token) * args.num_query_heads + blockIdx.x * kGroup + row % kGroup;
      const auto* source = reinterpret_cast<const float4*>(args.q + head * kHeadDim) + 2 * chunk;
      low = source[0];
      high = source[1];
    }
    store_shared(queries + chunk_offset(static_cast<uint32_t>(i), chunk, kQueryHalfBytes),
                 make_uint4(pack_fp16(low.x * kScoreScale, low.y * kScoreScale),
                            pack_fp16(low.z * kScoreScale, low.w * kScoreScale),
                            pack_fp16(high.x * kScoreScale, high.y * kScoreScale),
                            pack_fp16(high.z * kScoreScale, high.w * kScoreScale)));
  }
}

__device__ void score_tile(float (&scores)[64], uint32_t queries, uint32_t keys) {
  const uint64_t a = operand(queries, 16);
  const uint64_t b = operand(keys, 16);
#pragma unroll
  for (uint32_t k = 0; k < kHeadDim / 16; ++k) {
    const uint64_t a_part = advance(a, k / 4 * kQueryHalfBytes + k % 4 * 32);
    const uint64_t b_part = advance(b, k / 4 * kHalfBytes + k % 4 * 32);
    if (k == 0) {
      product_of_rows<false>(scores, a_part, b_part);
    } else {
      product_of_rows<true>(scores, a_part, b_part);
    }
  }
  wgmma_commit();
}

using Weights = uint32_t[kTilePositions / 16][4];

__device__ void add_values(float (&sums)[64], const Weights& weights, uint32_t values) {
  const uint64_t b = operand(values, kHalfBytes);
#pragma unroll
  for (uint32_t k = 0; k < kTilePositions / 16; ++k) {
    product_with_columns(sums, weights[k], advance(b, k * 16 * kSwizzleRowBytes));
  }
  wgmma_commit();
}

// Rows g and g + 8 of a warp's 16; the lanes of a row hold sums over their own columns.
struct Softmax {
  float max[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0.0F, 0.0F};
};

// Scores of positions above the row's own become minus infinity. last: the rows' positions relative to the tile and to
// this lane's first column.
__device__ void mask_tile(float (&scores)[64], const int32_t (&last)[2]) {
#pragma unroll
  for (int i = 0; i < 64; ++i) {
    scores[i] = i / 4 * 8 + i % 2 <= last[i / 2 % 2] ? scores[i] : -INFINITY;
  }
}

// Turns scores into weights relative to the running maximum, by which earlier sums are to be rescaled.
__device__ void weigh_tile(float (&scores)[64], Softmax& softmax, float (&rescale)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float max = softmax.max[half];
#pragma unroll
    for (int n = 0; n < 16; ++n) {
      max = fmaxf(max, fmaxf(scores[4 * n + 2 * half], scores[4 * n + 2 * half + 1]));
    }
    max = max_over_columns(max);
    rescale[half] = exp2_fast(softmax.max[half] - max);
    softmax.max[half] = max;
    float sums[2] = {0.0F, 0.0F};
#pragma unroll
    for (int n = 0; n < 16; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float& score = scores[4 * n + 2 * half + j];
        score = exp2_fast(score - max);
        sums[j] += score;
      }
    }
    softmax.sum[half] = fmaf(softmax.sum[half], rescale[half], sums[0] + sums[1]);
  }
}

__device__ void rescale_values(float (&values)[64], const float (&rescale)[2]) {
#pragma unroll
  for (int i = 0; i < 64; ++i) {
    values[i] *= rescale[i / 2 % 2];
  }
}

__device__ void pack_weights(Weights& packed, const float (&weights)[64]) {
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    packed[i / 4][i % 4] = pack_fp16(weights[2 * i], weights[2 * i + 1]);
  }
}

template <int kGroup>
__device__ void write_output(const AttentionPromptArgs& args, const PromptTile& tile, const float (&values)[64],
                             const Softmax& softmax, int32_t first_row, int32_t lane) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float scale = kAttentionScale / sum_over_columns(softmax.sum[half]);
    const int32_t row = first_row + lane / 4 + half * 8;
    const int32_t token = row / kGroup;
    if (token < tile.num_tokens) {
      const int64_t head =
          (int64_t{tile.first_row} + token) * args.num_query_heads + blockIdx.x * kGroup + row % kGroup;
      auto* out = reinterpret_cast<uint32_t*>(args.high + head * kHeadDim) + lane % 4;
#pragma unroll
      for (int n = 0; n < 16; ++n) {
        out[n * 4] = pack_fp16(values[4 * n + 2 * half] * scale, values[4 * n + 2 * half + 1] * scale);
      }
    }
  }
}

template <int kGroup>
__device__ void consume(const Ring& ring, const AttentionPromptArgs& args, const PromptTile& tile, int32_t end) {
  const auto consumer = static_cast<int32_t>(threadIdx.x / 128) - 1;
  const auto thread = static_cast<int32_t>(threadIdx.x % 128);
  const int32_t lane = thread % 32;
  const int32_t first_row = consumer * 64 + thread / 32 * 16;
  const uint32_t queries = ring.base + kQueriesOffset + static_cast<uint32_t>(consumer) * 2 * kQueryHalfBytes;
  load_queries<kGroup>(queries, args, tile, consumer * 64, thread);
  fence_for_engines();
  sync_warpgroup(static_cast<uint32_t>(consumer) + 1);
  const auto release = [&](uint32_t item) {
    if (lane == 0) {
      arrive(ring.empty(item));
    }
  };
  const int32_t column = tile.first_position - lane % 4 * 2;  // of the tile's first token, as mask_tile() counts
  const int32_t last[2] = {column + (first_row + lane / 4) / kGroup, column + (first_row + lane / 4 + 8) / kGroup};
  float scores[64], values[64] = {}, rescale[2];
  Weights weights;
  Softmax softmax;
  const auto weigh = [&](int32_t first) {
    if (first + kTilePositions - 1 > tile.first_position) {
      mask_tile(scores, {last[0] - first, last[1] - first});
    }
    weigh_tile(scores, softmax, rescale);
  };
  wait_phase(ring.full(0), ring.parity(0));
  wgmma_fence();
  score_tile(scores, queries, ring.tile(0));
  wait_products<0>(scores);
  release(0);
  weigh(0);
  pack_weights(weights, scores);
  uint32_t item = 0;  // the last tile of keys
  for (int32_t first = kTilePositions; first < end; first += kTilePositions, item += 2) {
    wait_phase(ring.full(item + 2), ring.parity(item + 2));
    wgmma_fence();
    score_tile(scores, queries, ring.tile(item + 2));
    wait_phase(ring.full(item + 1), ring.parity(item + 1));
    wgmma_fence();
    add_values(values, weights, ring.tile(item + 1));
    wait_products<1>(scores);
    release(item + 2);
    weigh(first);
    wait_products<0>(values);
    release(item + 1);
    rescale_values(values, rescale);
    pack_weights(weights, scores);
  }
  wait_phase(ring.full(item + 1), ring.parity(item + 1));
  wgmma_fence();
  add_values(values, weights, ring.tile(item + 1));
  wait_products<0>(values);
  write_output<kGroup>(args, tile, values, softmax, first_row, lane);
}

#endif

template <int kGroup>
__global__ void __launch_bounds__(kThreads, 1)
    attention_prompt_sm90_kernel(const AttentionPromptArgs args, const __grid_constant__ CUtensorMap map) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ uint8_t shared[];
  const Ring ring{(shared_address(shared) + kSwizzleAtomBytes - 1) / kSwizzleAtomBytes * kSwizzleAtomBytes};
  if (threadIdx.x < kSlots) {
    init_barrier(ring.full(threadIdx.x), 1);
    init_barrier(ring.empty(threadIdx.x), kConsumers * 4);
  }
  if (threadIdx.x == 0) {
    init_barrier(ring.tail(), 1);
  }
  fence_for_engines();
  __syncthreads();
  wait_for_previous();
  start_next();
  const PromptTile tile = args.tiles[blockIdx.y];
  const int32_t end = tile.first_position + tile.num_tokens;
  if (threadIdx.x < 128) {
    lower_registers<kProducerRegisters>();
    if (threadIdx.x < 32) {
      produce(ring, {.map = map,
                     .table = args.kv.block_tables + int64_t{tile.sequence} * args.kv.table_stride,
                     .kv_head = static_cast<int32_t>(blockIdx.x),
                     .end = end});
    }
  } else {
    raise_registers<kConsumerRegisters>();
    consume<kGroup>(ring, args, tile, end);
  }
#else
  __trap();  // never launched: see has_attention_prompt_sm90()
#endif
}

template <int kGroup>
cudaError_t launch_group(const AttentionPromptArgs& args, const LaunchContext& context) {
  const cudaError_t error = cudaFuncSetAttribute(attention_prompt_sm90_kernel<kGroup>,
                                                 cudaFuncAttributeMaxDynamicSharedMemorySize, int{kSharedBytes});
  if (error != cudaSuccess) {
    return error;
  }
  CUtensorMap map;
  if (make_kv_map(map, args.kv) != CUDA_SUCCESS) {
    return cudaErrorInvalidValue;
  }
  const dim3 grid(kNumKvHeads, static_cast<uint32_t>(args.num_tiles));  // a tile's heads one after the other
  return launch(attention_prompt_sm90_kernel<kGroup>,
                {.grid = grid, .block = dim3(kThreads), .shared_bytes = kSharedBytes}, context, args, map);
}

}  // namespace

bool has_attention_prompt_sm90() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, attention_prompt_sm90_kernel<4>) == cudaSuccess &&
         attributes.ptxVersion == 90 && attributes.binaryVersion == 90;
}

cudaError_t attention_prompt_sm90(const AttentionPromptArgs& args, const LaunchContext& context) {
  return for_query_group(args.num_query_heads, [&](auto group) { return launch_group<group.value>(args, context); });
}

}  // namespace kipp::cuda
