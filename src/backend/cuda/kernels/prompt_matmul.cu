// Products of prompt rows on Hopper, bound by the matrix unit. A block has one warpgroup that copies and two that
// multiply 64 weight rows each with up to 256 tokens; it walks its tiles one after the other while copies run ahead.
#include <algorithm>

#include "backend/cuda/kernels/hopper.cuh"
#include "backend/cuda/kernels/matmul.h"
#include "backend/cuda/kernels/matmul_epilogue.cuh"
#include "backend/cuda/kernels/tensor_map.h"
#include "backend/cuda/kernels/wgmma.cuh"

namespace kipp::cuda {
namespace {

constexpr int32_t kBlockRows = 128;
constexpr int32_t kThreads = 384;
constexpr int32_t kMapRows = 32;  // tokens in one box of the activations' tensor map
constexpr int32_t kWeightStageBytes = kBlockRows * kTileColumns * 2;
[[maybe_unused]] constexpr uint32_t kReleases = 8;  // warps that multiply

template <int32_t tokens>
struct Shape {
  static constexpr int32_t kActivationStageBytes = tokens * kTileColumns * 2;
  static constexpr int32_t kStageBytes = kWeightStageBytes + kActivationStageBytes;
  static constexpr int32_t kStages = std::min(6, 220 * 1024 / kStageBytes);
  static constexpr int32_t kSharedBytes = kStages * kStageBytes + 1024;  // 1,024 to align
};

template <int32_t stages>
struct Ring {
  Barrier full[stages];
  Barrier empty[stages];
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

struct Grid {
  int32_t num_k;  // tiles of 64 columns
  int32_t num_token_tiles;
  int32_t num_tiles;
};

// The copying warp: lanes 0 to 7 fetch a tile of 16 weight rows each, lane 0 the activations.
template <int32_t tokens>
__device__ void copy_stages(const MatmulArgs& args, const CUtensorMap& x_map, const Grid& grid, std::byte* stages,
                            Ring<Shape<tokens>::kStages>& ring) {
  using S = Shape<tokens>;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  Cursor<S::kStages> cursor;
  for (int32_t tile = static_cast<int32_t>(blockIdx.x); tile < grid.num_tiles;
       tile += static_cast<int32_t>(gridDim.x)) {
    const int32_t first_row_tile = tile / grid.num_token_tiles * (kBlockRows / kTileRows);
    const int32_t first_token = args.x.map_row + tile % grid.num_token_tiles * tokens;
    for (int32_t k = 0; k < grid.num_k; ++k, cursor.advance()) {
      ring.empty[cursor.stage].wait(cursor.parity ^ 1U);
      Barrier& full = ring.full[cursor.stage];
      if (lane == 0) full.arrive_and_expect(S::kStageBytes);
      __syncwarp();
      const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(stages + cursor.stage * S::kStageBytes));
      if (lane < kBlockRows / kTileRows) {
        const int64_t from = int64_t{first_row_tile + lane} * grid.num_k + k;
        copy_bulk(to + static_cast<uint32_t>(lane) * kFp16TileBytes, args.matrix.tiles + from * kFp16TileBytes,
                  kFp16TileBytes, full);
      } else if (lane - kBlockRows / kTileRows < tokens / kMapRows) {
        const int32_t box = lane - kBlockRows / kTileRows;
        copy_box(to + kWeightStageBytes + static_cast<uint32_t>(box) * kMapRows * kTileColumns * 2, x_map,
                 k * kTileColumns, first_token + box * kMapRows, full);
      }
    }
  }
}

template <int32_t tokens>
__device__ void store_tile(const MatmulArgs& args, int32_t row_tile, int32_t first_token,
                           const float (&d)[tokens / 2]) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
#pragma unroll
  for (int32_t n = 0; n < tokens / 8; ++n) {
#pragma unroll
    for (int32_t i = 0; i < 2; ++i) {
      const int32_t token = first_token + n * 8 + lane % 4 * 2 + i;
      if (token < args.num_rows) {
        store_rows(args, token, row_tile, lane / 4, d[n * 4 + i], d[n * 4 + 2 + i]);
      }
    }
  }
}

// One of the two multiplying warpgroups: rows 64 · half … of every tile.
template <int32_t tokens>
__device__ void multiply_stages(const MatmulArgs& args, const Grid& grid, std::byte* stages,
                                Ring<Shape<tokens>::kStages>& ring, int32_t half) {
  using S = Shape<tokens>;
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / 32 % 4;
  const bool releases = threadIdx.x % 32 == 0;
  Cursor<S::kStages> cursor;
  for (int32_t tile = static_cast<int32_t>(blockIdx.x); tile < grid.num_tiles;
       tile += static_cast<int32_t>(gridDim.x)) {
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
      if (previous >= 0 && releases) ring.empty[previous].arrive();
      previous = cursor.stage;
    }
    wgmma_wait<0>();
    if (releases) ring.empty[previous].arrive();
    const int32_t row_tile = tile / grid.num_token_tiles * (kBlockRows / kTileRows) + half * 4 + warp;
    store_tile<tokens>(args, row_tile, tile % grid.num_token_tiles * tokens, d);
  }
}

template <int32_t tokens>
__global__ void __launch_bounds__(kThreads, 1)
    prompt_matmul_kernel(const __grid_constant__ MatmulArgs args, const __grid_constant__ CUtensorMap x_map,
                         Grid grid) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using S = Shape<tokens>;
  extern __shared__ std::byte unaligned[];
  __shared__ Ring<S::kStages> ring;
  auto* stages = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(unaligned) + 1023) / 1024 * 1024);
  if (threadIdx.x == 0) {
    for (int32_t i = 0; i < S::kStages; ++i) {
      ring.full[i].init(1);
      ring.empty[i].init(kReleases);
    }
    fence_barrier_init();
  }
  __syncthreads();
  start_next();
  wait_for_previous();
  if (threadIdx.x < 128) {
    lower_registers<40>();
    if (threadIdx.x < 32) copy_stages<tokens>(args, x_map, grid, stages, ring);
  } else {
    raise_registers<232>();
    multiply_stages<tokens>(args, grid, stages, ring, static_cast<int32_t>(threadIdx.x) / 128 - 1);
  }
#else
  __trap();  // chosen by the device, so code for it must be there: an error, not a result of nothing
#endif
}

template <int32_t tokens>
cudaError_t run(const MatmulArgs& args, const CUtensorMap& x_map, int32_t num_sms, const LaunchContext& context) {
  const auto kernel = prompt_matmul_kernel<tokens>;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Shape<tokens>::kSharedBytes);
  if (error != cudaSuccess) return error;
  Grid grid{.num_k = args.matrix.padded_columns / kTileColumns,
            .num_token_tiles = (args.num_rows + tokens - 1) / tokens,
            .num_tiles = 0};
  grid.num_tiles = args.matrix.padded_rows / kBlockRows * grid.num_token_tiles;
  return launch(kernel,
                {.grid = dim3(static_cast<uint32_t>(std::min(num_sms, grid.num_tiles))),
                 .block = dim3(kThreads),
                 .shared_bytes = Shape<tokens>::kSharedBytes},
                context, args, x_map, grid);
}

// Rounds over the chip times what a round costs, in units of a token: narrower tiles waste more on each stage.
int64_t cost_of(const MatmulArgs& args, int32_t tokens, int32_t num_sms) {
  constexpr int32_t kStageOverhead = 24;
  const int64_t tiles = int64_t{args.matrix.padded_rows / kBlockRows} * ((args.num_rows + tokens - 1) / tokens);
  return (tiles + num_sms - 1) / num_sms * (tokens + kStageOverhead);
}

}  // namespace

cudaError_t prompt_matmul_wgmma(const MatmulArgs& args, const CUtensorMap& x_map, int32_t num_sms,
                                const LaunchContext& context) {
  int32_t best = 256;
  for (const int32_t tokens : {192, 160, 128, 64}) {
    if (cost_of(args, tokens, num_sms) < cost_of(args, best, num_sms)) best = tokens;
  }
  switch (best) {
    case 64: return run<64>(args, x_map, num_sms, context);
    case 128: return run<128>(args, x_map, num_sms, context);
    case 160: return run<160>(args, x_map, num_sms, context);
    case 192: return run<192>(args, x_map, num_sms, context);
    default: return run<256>(args, x_map, num_sms, context);
  }
}

CUresult make_activation_map(CUtensorMap& map, const __half* x, int32_t rows, int32_t stride) {
  return make_row_map(map, x, rows, stride, kMapRows);
}

}  // namespace kipp::cuda
