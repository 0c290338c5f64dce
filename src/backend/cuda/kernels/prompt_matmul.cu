// Products of prompt rows on Hopper, bound by the matrix unit. Two blocks of a cluster take neighbouring weight rows
// and the same tokens: each fetches half of the activations for both, because the second-level cache could not feed
// every multiprocessor with all that it multiplies (decision 0020). A block has one thread that copies and two
// warpgroups that multiply 64 weight rows each with up to 256 tokens; it walks its tiles one after the other while
// copies run ahead.
#include <algorithm>

#include "backend/cuda/kernels/hopper.cuh"
#include "backend/cuda/kernels/matmul.h"
#include "backend/cuda/kernels/matmul_epilogue.cuh"
#include "backend/cuda/kernels/tensor_map.h"
#include "backend/cuda/kernels/wgmma.cuh"
#include "backend/cuda/scales.h"

namespace kipp::cuda {
namespace {

constexpr int32_t kBlockRows = 128;
constexpr int32_t kBlockRowTiles = kBlockRows / kTileRows;
constexpr int32_t kClusterBlocks = 2;
constexpr int32_t kThreads = 384;
constexpr int32_t kBandTokens = 2048;  // whose activations stay in the cache while all weights pass by
constexpr int32_t kWeightStageBytes = kBlockRows * kTileColumns * 2;
[[maybe_unused]] constexpr uint32_t kReleases = 8 * kClusterBlocks;  // warps that multiply
constexpr int32_t kSumTokens = 16;                                   // that leave at a time
constexpr int32_t kGatedTokens = 32;                                 // likewise, as activations
constexpr int32_t kOutBytes = 2 * 16 * 1024;                         // both warpgroups' sums on their way out
constexpr int32_t kAlignment = 1024;                                 // what the swizzle repeats after
constexpr int32_t kMostShared = 227 * 1024;

template <int32_t tokens>
struct Shape {
  static constexpr int32_t kActivationStageBytes = tokens * kTileColumns * 2;
  static constexpr int32_t kStageBytes = kWeightStageBytes + kActivationStageBytes;
  static constexpr int32_t kStages = std::min(6, (kMostShared - kOutBytes - 2 * kAlignment) / kStageBytes);
  static constexpr int32_t kSharedBytes = kStages * kStageBytes + kOutBytes + kAlignment;
  static_assert(kStageBytes % kAlignment == 0 && tokens % 32 == 0);
};

template <int32_t stages>
struct Ring {
  Barrier full[stages];
  Barrier empty[stages];  // of both blocks' readers
};

// Which stage comes next, and the parity of its phase.
template <int32_t stages>
struct Cursor {
  int32_t stage = 0;
  uint32_t parity = 0;

  __device__ void advance() {
    if (++stage == stages) {
      stage = 0;
      parity ^= 1U;
    }
  }
};

// A tile is a cluster's: kClusterBlocks times 128 weight rows, and some tokens. Tiles of a band of tokens come one
// after the other, and in it those that share weights.
struct Grid {
  int32_t num_k;  // tiles of 64 columns
  int32_t num_row_groups;
  int32_t num_token_tiles;
  int32_t band;  // tiles of tokens
  int32_t num_tiles;
};

struct Maps {
  CUtensorMap weights, activations, out;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

constexpr int32_t kWarpgroupRows = 64;

struct Place {
  int32_t row_group, token_tile;
};

__device__ Place place_of(const Grid& grid, int32_t tile) {
  const int32_t first = tile / (grid.band * grid.num_row_groups) * grid.band;
  const int32_t width = min(grid.band, grid.num_token_tiles - first);
  const int32_t in_band = tile - first * grid.num_row_groups;
  return {in_band / width, first + in_band % width};
}

__device__ inline int32_t block_of_cluster() {
  return static_cast<int32_t>(blockIdx.x) % kClusterBlocks;
}
__device__ inline int32_t first_row_tile(int32_t row_group) {
  return (row_group * kClusterBlocks + block_of_cluster()) * kBlockRowTiles;
}

// What the copying thread does. Weight rows and tokens beyond the last arrive as zeros.
template <int32_t tokens>
__device__ void copy_stages(const Maps& maps, const Grid& grid, std::byte* stages, Ring<Shape<tokens>::kStages>& ring) {
  using S = Shape<tokens>;
  constexpr int32_t kShare = tokens / kClusterBlocks;
  constexpr uint32_t kAll = (1U << kClusterBlocks) - 1;
  const int32_t rank = block_of_cluster();
  Cursor<S::kStages> cursor;
  for (int32_t tile = static_cast<int32_t>(blockIdx.x) / kClusterBlocks; tile < grid.num_tiles;
       tile += static_cast<int32_t>(gridDim.x) / kClusterBlocks) {
    const Place place = place_of(grid, tile);
    const int32_t row_tile = first_row_tile(place.row_group);
    const int32_t first_token = place.token_tile * tokens + rank * kShare;
    for (int32_t k = 0; k < grid.num_k; ++k, cursor.advance()) {
      ring.empty[cursor.stage].wait(cursor.parity ^ 1U);
      Barrier& full = ring.full[cursor.stage];
      full.arrive_and_expect(S::kStageBytes);
      const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(stages + cursor.stage * S::kStageBytes));
      copy_records(to, maps.weights, k, row_tile, full);
      copy_box_to_blocks(to + kWeightStageBytes + static_cast<uint32_t>(rank * kShare * kTileColumns * 2),
                         maps.activations, k * kTileColumns, first_token, full, kAll);
    }
  }
}

// silu(gate) · up, on its way to 11 bits.
__device__ inline float fast_swiglu(float gate, float up) {
  return __fdividef(gate, 1.0F + __expf(-gate)) * up;
}

// A warpgroup's way out, through its part of shared memory. Sums leave warp by warp, in pieces of 16 tokens by 16 rows,
// some of which are read while others are written; the gated activations of all four warps together, since a warp's
// would be no whole sectors. A row of either is 64 bytes.
class Output {
 public:
  __device__ Output(const MatmulArgs& args, const CUtensorMap& map, std::byte* shared, int32_t half)
      : args_(args),
        map_(map),
        shared_(shared + half * (kOutBytes / 2)),
        half_(half),
        warp_(static_cast<int32_t>(threadIdx.x) / 32 % 4),
        lane_(static_cast<int32_t>(threadIdx.x) % 32) {}

  // d: of the warpgroup's 64 rows from first_row on.
  template <int32_t tokens, bool gates>
  __device__ void store(const float (&d)[tokens / 2], int32_t first_row, int32_t first_token) const {
    if constexpr (gates) {
      store_gated<tokens>(d, first_row / 2, first_token);
    } else {
      store_sums<tokens>(d, first_row + warp_ * kTileRows, first_token);
    }
  }
  __device__ void finish() const { wait_for_stores<0>(); }

 private:
  static constexpr int32_t kRowBytes = 64;
  static constexpr int32_t kPieces = kOutBytes / 8 / (kSumTokens * kRowBytes);  // of a warp

  // Where 16-byte piece `piece` of a token's row lies.
  __device__ static int32_t place(int32_t token, int32_t piece) {
    return token * kRowBytes + (piece ^ (token / 2 % 4)) * 16;
  }
  __device__ void send(int32_t column, int32_t token, const std::byte* from) const {
    store_box(map_, column, token, static_cast<uint32_t>(__cvta_generic_to_shared(from)));
  }

  // A lane has tokens 2 t and 2 t + 1 of each eight. It takes the odd one first where t is odd: so no two lanes meet in
  // a bank.
  template <int32_t tokens>
  __device__ void store_sums(const float (&d)[tokens / 2], int32_t first_row, int32_t first_token) const {
    const int32_t g = lane_ / 4;
#pragma unroll
    for (int32_t p = 0; p < tokens / kSumTokens; ++p) {
      std::byte* piece = shared_ + (warp_ * kPieces + p % kPieces) * kSumTokens * kRowBytes;
      if (p == 0) {
        wait_for_reads<0>();  // of the tile before, long ago; only lane 0 has any
      } else {
        wait_for_reads<kPieces - 1>();
      }
      __syncwarp();
#pragma unroll
      for (int32_t i = 0; i < kSumTokens / 4; ++i) {
        const int32_t first = (p * kSumTokens / 8 + i / 2) * 4;
        const bool odd = (i + lane_) % 2 != 0;
        const int32_t token = i / 2 * 8 + lane_ % 4 * 2 + (odd ? 1 : 0);
        const float low_row = odd ? d[first + 1] : d[first];
        const float high_row = odd ? d[first + 3] : d[first + 2];
        *reinterpret_cast<float*>(piece + place(token, g / 4) + g % 4 * 4) = low_row * args_.out_scale;
        *reinterpret_cast<float*>(piece + place(token, g / 4 + 2) + g % 4 * 4) = high_row * args_.out_scale;
      }
      fence_for_engines();
      __syncwarp();
      if (lane_ == 0) {
        send(first_row, first_token + p * kSumTokens, piece);
        commit_stores();
      }
    }
  }

  template <int32_t tokens>
  __device__ void store_gated(const float (&d)[tokens / 2], int32_t first_column, int32_t first_token) const {
    const auto first = static_cast<uint32_t>(__cvta_generic_to_shared(shared_ + lane_ / 4 * 2));
    wait_for_reads<0>();  // only one thread has any
    wait_at_barrier(1 + half_, 128);
#pragma unroll
    for (int32_t i = 0; i < tokens / 4; ++i) {
      float gate = d[i / 2 * 4 + i % 2];
      asm volatile("" : "+f"(gate));  // one after the other: there are no registers for all of them at once
      const float up = d[i / 2 * 4 + 2 + i % 2] * args_.out_scale;
      const int32_t token = i / 2 * 8 + lane_ % 4 * 2 + i % 2;
      const __half value = __float2half_rn(fast_swiglu(gate * args_.out_scale, up) * kSwigluScale);
      asm volatile("st.shared.b16 [%0], %1;" ::"r"(first + place(token, warp_)), "h"(__half_as_ushort(value))
                   : "memory");
    }
    fence_for_engines();
    wait_at_barrier(1 + half_, 128);
    if (warp_ != 0 || lane_ != 0) return;
    for (int32_t t = 0; t < tokens; t += kGatedTokens) send(first_column, first_token + t, shared_ + t * kRowBytes);
    commit_stores();
  }

  const MatmulArgs& args_;
  const CUtensorMap& map_;
  std::byte* shared_;
  int32_t half_, warp_, lane_;
};

// One of the two multiplying warpgroups: rows 64 · half … of every tile.
template <int32_t tokens, bool gates>
__device__ void multiply_stages(const MatmulArgs& args, const Maps& maps, const Grid& grid, std::byte* stages,
                                Ring<Shape<tokens>::kStages>& ring, int32_t half) {
  using S = Shape<tokens>;
  const Output output(args, maps.out, stages + S::kStages * S::kStageBytes, half);
  const uint32_t lane = threadIdx.x % 32;
  const auto release = [&](int32_t stage) {
    if (lane < kClusterBlocks) ring.empty[stage].arrive_at(lane);
  };
  Cursor<S::kStages> cursor;
  for (int32_t tile = static_cast<int32_t>(blockIdx.x) / kClusterBlocks; tile < grid.num_tiles;
       tile += static_cast<int32_t>(gridDim.x) / kClusterBlocks) {
    float d[tokens / 2] = {};
    int32_t previous = -1;
    for (int32_t k = 0; k < grid.num_k; ++k, cursor.advance()) {
      ring.full[cursor.stage].wait(cursor.parity);
      const auto base = static_cast<uint32_t>(__cvta_generic_to_shared(stages + cursor.stage * S::kStageBytes));
      const uint64_t a = swizzled_operand(base + static_cast<uint32_t>(half) * (kWeightStageBytes / 2));
      const uint64_t b = swizzled_operand(base + kWeightStageBytes);
      wgmma_fence();
#pragma unroll
      for (uint64_t step = 0; step < 4; ++step) {  // 16 columns: 32 bytes on
        Wgmma<tokens>::multiply(d, a + step * 2, b + step * 2);
      }
      wgmma_commit();
      wgmma_wait<1>();
      if (previous >= 0) release(previous);
      previous = cursor.stage;
    }
    wgmma_wait<0>();
#pragma unroll
    for (float& sum : d) asm volatile("" : "+f"(sum)::"memory");  // not read before the wait
    release(previous);
    const Place place = place_of(grid, tile);
    output.store<tokens, gates>(d, first_row_tile(place.row_group) * kTileRows + half * kWarpgroupRows,
                                place.token_tile * tokens);
  }
  output.finish();
}

#endif

template <int32_t tokens, bool gates>
__global__ void __launch_bounds__(kThreads, 1)
    prompt_matmul_kernel(const __grid_constant__ MatmulArgs args, const __grid_constant__ Maps maps, Grid grid) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using S = Shape<tokens>;
  extern __shared__ std::byte unaligned[];
  __shared__ Ring<S::kStages> ring;
  auto* stages =
      reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(unaligned) + kAlignment - 1) / kAlignment * kAlignment);
  if (threadIdx.x == 0) {
    for (int32_t i = 0; i < S::kStages; ++i) {
      ring.full[i].init(1);
      ring.empty[i].init(kReleases);
    }
    fence_barrier_init();
  }
  __syncwarp();
  cluster_arrive();
  start_next();
  cluster_wait();
  wait_for_previous();
  if (threadIdx.x < 128) {
    lower_registers<40>();
    if (threadIdx.x == 0) copy_stages<tokens>(maps, grid, stages, ring);
  } else {
    raise_registers<232>();
    multiply_stages<tokens, gates>(args, maps, grid, stages, ring, static_cast<int32_t>(threadIdx.x) / 128 - 1);
  }
  __syncwarp();
  cluster_arrive_release();  // the other block's last releases come to this one's barriers
  cluster_wait();
#else
  __trap();  // chosen by the device, so code for it must be there: an error, not a result of nothing
#endif
}

int32_t num_clusters(int32_t num_sms) {
  return std::max(1, num_sms / kClusterBlocks);
}

Grid grid_of(const MatmulArgs& args, int32_t tokens) {
  constexpr int32_t kGroupRows = kClusterBlocks * kBlockRows;
  Grid grid{.num_k = args.matrix.padded_columns / kTileColumns,
            .num_row_groups = (args.matrix.padded_rows + kGroupRows - 1) / kGroupRows,
            .num_token_tiles = (args.num_rows + tokens - 1) / tokens,
            .band = std::max(1, kBandTokens / tokens),
            .num_tiles = 0};
  grid.num_tiles = grid.num_row_groups * grid.num_token_tiles;
  return grid;
}

template <int32_t tokens>
CUresult make_maps(Maps& maps, const MatmulArgs& args) {
  const DeviceMatrix& m = args.matrix;
  const MatmulOutput& to = args.to;
  const CUresult weights = make_record_map(maps.weights, m.tiles, kFp16TileBytes, m.padded_rows / kTileRows,
                                           m.padded_columns / kTileColumns, kBlockRowTiles);
  if (weights != CUDA_SUCCESS) return weights;
  const CUresult activations =
      make_row_map(maps.activations, args.x.high, args.num_rows, args.x.stride, tokens / kClusterBlocks);
  if (activations != CUDA_SUCCESS) return activations;
  return args.swiglu ? make_output_map(maps.out, to.high, args.num_rows, to.width, to.stride, kGatedTokens)
                     : make_output_map(maps.out, to.out, args.num_rows, to.width, to.stride, kSumTokens);
}

template <int32_t tokens>
cudaError_t run(const MatmulArgs& args, int32_t num_sms, const LaunchContext& context) {
  static_assert(tokens / kClusterBlocks % 8 == 0, "what the swizzle repeats after");
  if (args.to.accumulate || args.to.low != nullptr) return cudaErrorInvalidValue;
  const auto kernel = args.swiglu ? prompt_matmul_kernel<tokens, true> : prompt_matmul_kernel<tokens, false>;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Shape<tokens>::kSharedBytes);
  if (error != cudaSuccess) return error;
  const Grid grid = grid_of(args, tokens);
  Maps maps{};
  if (make_maps<tokens>(maps, args) != CUDA_SUCCESS) return cudaErrorInvalidValue;
  return launch(kernel,
                {.grid = dim3(static_cast<uint32_t>(std::min(num_clusters(num_sms), grid.num_tiles) * kClusterBlocks)),
                 .block = dim3(kThreads),
                 .shared_bytes = Shape<tokens>::kSharedBytes,
                 .cluster = kClusterBlocks},
                context, args, maps, grid);
}

// Rounds over the chip times what a round costs, in units of what a stage takes for one token (2.7 ns on an H200).
// Narrow tiles are bound by reading shared memory. Measured with tests/cuda/matmul_bench.cc.
int64_t cost_of(const MatmulArgs& args, int32_t tokens, int32_t num_sms) {
  constexpr int32_t kStageOverhead = 6;
  constexpr int32_t kNarrowest = 107;
  const Grid grid = grid_of(args, tokens);
  const int32_t at_a_time = num_clusters(num_sms);
  const int64_t stages = int64_t{grid.num_k} * std::max(tokens + kStageOverhead, kNarrowest);
  const int64_t end = 2 * tokens + 100;
  return (grid.num_tiles + at_a_time - 1) / at_a_time * (stages + end);
}

}  // namespace

int32_t plan_prompt_matmul(const MatmulArgs& args, int32_t num_sms) {
  int32_t best = kPromptTileTokens[0];
  for (const int32_t tokens : kPromptTileTokens) {
    if (cost_of(args, tokens, num_sms) < cost_of(args, best, num_sms)) best = tokens;
  }
  return best;
}

cudaError_t prompt_matmul_wgmma(const MatmulArgs& args, int32_t tile_tokens, int32_t num_sms,
                                const LaunchContext& context) {
  switch (tile_tokens) {
    case 64: return run<64>(args, num_sms, context);
    case 128: return run<128>(args, num_sms, context);
    case 160: return run<160>(args, num_sms, context);
    case 192: return run<192>(args, num_sms, context);
    case 256: return run<256>(args, num_sms, context);
    default: return cudaErrorInvalidValue;
  }
}

cudaError_t prompt_matmul(const MatmulArgs& args, bool has_wgmma, int32_t num_sms, const LaunchContext& context) {
  return has_wgmma ? prompt_matmul_wgmma(args, plan_prompt_matmul(args, num_sms), num_sms, context)
                   : prompt_matmul_portable(args, context);
}

}  // namespace kipp::cuda
