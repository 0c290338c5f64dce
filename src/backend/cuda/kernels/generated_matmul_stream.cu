// Products of up to 8 generated rows where there is a copy engine, bound by reading the weights.
// Four warps share 16 weight rows, one slice of the columns each. A warp has a ring of its own that the copy engine
// fills far ahead, across the ends of tiles; the activations lie in shared memory from the kernel's beginning to its
// end.
#include <algorithm>

#include "backend/cuda/kernels/generated_matmul_variants.h"
#include "backend/cuda/kernels/hopper.cuh"
#include "backend/cuda/kernels/matmul_epilogue.cuh"
#include "backend/cuda/kernels/tensor_core.cuh"

namespace kipp::cuda {
namespace {

constexpr int32_t kThreads = 32 * kNumSlices;
constexpr int32_t kMostTokens = 8;
constexpr int32_t kGroupColumns = 32;
// Between the rows of activations, so that two rows' pieces do not meet in one bank.
constexpr int32_t kRowPadding = 64;
constexpr int32_t kMostActivationBytes = 160 * 1024;
constexpr int32_t kSharedOfSm = 220 * 1024;

// A stage: kTiles tiles of 64 columns, then their scales.
template <WeightType type>
struct Ring {
  static constexpr int32_t kTiles = type == WeightType::kAffine4Gs32 ? 4 : 2;
  static constexpr int32_t kStages = type == WeightType::kBf16 ? 3 : 4;
  static constexpr int32_t kStageBytes = kTiles * (tile_bytes(type) + tile_scale_bytes(type));
  static constexpr int32_t kBytes = kStages * kStageBytes;
};

struct SharedLayout {
  int32_t row_bytes;  // of one term of one row of activations
  int32_t term_bytes;
  int32_t sums_at;  // of groups of activations: [padded_columns / 32][tokens rounded up to 2]
  int32_t sum_stride;
  int32_t rings_at;
  int32_t total;
};

template <WeightType type>
SharedLayout shared_layout(const DeviceMatrix& matrix, int32_t num_rows) {
  SharedLayout layout{};
  layout.row_bytes = matrix.padded_columns * 2 + kRowPadding;
  layout.term_bytes = num_rows * layout.row_bytes;
  layout.sums_at = 2 * layout.term_bytes;
  layout.sum_stride = (num_rows + 1) / 2 * 2;
  const int32_t sum_bytes =
      type == WeightType::kAffine4Gs32 ? matrix.padded_columns / kGroupColumns * layout.sum_stride * 4 : 0;
  layout.rings_at = static_cast<int32_t>(padded(layout.sums_at + sum_bytes, 128));
  layout.total = layout.rings_at + kNumSlices * Ring<type>::kBytes;
  return layout;
}

// One warp's weights: its slice of every tile of rows that the block handles.
template <WeightType type>
struct Stream {
  using R = Ring<type>;
  const DeviceMatrix& matrix;
  std::byte* ring;
  Barrier* full;
  int32_t num_tiles;  // of rows, in the matrix
  int32_t num_k;      // tiles along a slice
  int32_t tile = static_cast<int32_t>(blockIdx.x);
  int32_t k = 0;
  int32_t stage = 0;

  // Asks for the next stage; only lane 0 does.
  __device__ void request() {
    if (tile >= num_tiles) return;
    const int32_t count = min(R::kTiles, num_k - k);
    const int32_t slice = static_cast<int32_t>(threadIdx.x) / 32;
    const int64_t first = (int64_t{tile} * kNumSlices + slice) * num_k + k;
    const uint32_t to = shared_address(ring + stage * R::kStageBytes);
    const auto weight_bytes = static_cast<uint32_t>(count * tile_bytes(type));
    const auto scale_bytes = static_cast<uint32_t>(count * tile_scale_bytes(type));
    full[stage].arrive_and_expect(weight_bytes + scale_bytes);
    copy_bulk(to, matrix.tiles + first * tile_bytes(type), weight_bytes, full[stage]);
    if constexpr (type != WeightType::kBf16) {
      copy_bulk(to + R::kTiles * tile_bytes(type), matrix.scales + first * tile_scale_bytes(type), scale_bytes,
                full[stage]);
    }
    k += count;
    if (k == num_k) {
      k = 0;
      tile += static_cast<int32_t>(gridDim.x);
    }
    stage = (stage + 1) % R::kStages;
  }
};

// [term][token][column]; then, for AFFINE4, the sum of every group.
template <WeightType type>
__device__ void load_activations(const MatmulArgs& args, const SharedLayout& layout, std::byte* shared) {
  const int32_t pieces = args.matrix.padded_columns / 8;
  for (int32_t row = 0; row < 2 * args.num_rows; ++row) {
    const int32_t token = row % args.num_rows;
    const __half* from = (row < args.num_rows ? args.x.high : args.x.low) + int64_t{token} * args.x.stride;
    for (int32_t piece = static_cast<int32_t>(threadIdx.x); piece < pieces; piece += kThreads) {
      copy_async<16>(shared + row * layout.row_bytes + piece * 16, from + piece * 8);
    }
  }
  commit_copies();
  wait_for_copies<0>();
  __syncthreads();
  if constexpr (type == WeightType::kAffine4Gs32) {
    const int32_t groups = args.matrix.padded_columns / kGroupColumns;
    auto* sums = reinterpret_cast<float*>(shared + layout.sums_at);
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i < groups * args.num_rows; i += kThreads) {
      const std::byte* from = shared + i / groups * layout.row_bytes + i % groups * (kGroupColumns * 2);
      float part[4];
#pragma unroll
      for (int32_t t = 0; t < 4; ++t) {
        part[t] = sum_of_activations({*reinterpret_cast<const uint4*>(from + t * 16),
                                      *reinterpret_cast<const uint4*>(from + layout.term_bytes + t * 16)});
      }
      sums[i % groups * layout.sum_stride + i / groups] = sum_of_group(part[0], part[1], part[2], part[3]);
    }
    __syncthreads();
  }
}

// What a lane reads of the activations. Columns of the matrix unit beyond the last row get what an earlier one has:
// nothing comes of them.
struct LaneActivations {
  const std::byte* high;
  int32_t term_bytes;
  const float* sums;  // of tokens 2t and 2t + 1
  int32_t sum_stride;

  __device__ LaneActivations(const MatmulArgs& args, const SharedLayout& layout, const std::byte* shared)
      : term_bytes(layout.term_bytes), sum_stride(layout.sum_stride) {
    const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
    high = shared + min(lane / 4, args.num_rows - 1) * layout.row_bytes + lane % 4 * 16;
    sums = reinterpret_cast<const float*>(shared + layout.sums_at) + min(lane % 4 * 2, layout.sum_stride - 2);
  }
};

// Free functions, not members: where the kernel is empty (before Hopper) nvcc would warn of members that nobody calls.
[[maybe_unused]] __device__ ActivationFragment fragment_of(const LaneActivations& x, int32_t group) {
  const std::byte* from = x.high + group * (kGroupColumns * 2);
  return {*reinterpret_cast<const uint4*>(from), *reinterpret_cast<const uint4*>(from + x.term_bytes)};
}
[[maybe_unused]] __device__ float2 sum_of(const LaneActivations& x, int32_t group) {
  return *reinterpret_cast<const float2*>(x.sums + group * x.sum_stride);
}

// What a lane needs of a group of 32 columns of a tile. scales: those of this lane's rows.
template <WeightType type>
__device__ WeightFragment fragment_of(const std::byte* tile, const std::byte* scales, int32_t group) {
  if constexpr (type == WeightType::kBf16) {
    const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
    const int32_t g = lane / 4;
    return fp16_fragment(tile + g * 128 + ((lane % 4 + group * 4) ^ g) * 16, 1024);
  } else {
    return quantized_fragment<type>(tile, scales, group);
  }
}

// A warp's slice of one tile of rows.
template <WeightType type>
__device__ void multiply_slice(float (&sum)[4], Stream<type>& stream, int32_t& stage, uint32_t& parity,
                               const LaneActivations& x) {
  using R = Ring<type>;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const int32_t first_k = static_cast<int32_t>(threadIdx.x) / 32 * stream.num_k;
  for (int32_t k = 0; k < stream.num_k; k += R::kTiles) {
    stream.full[stage].wait(parity);
    const std::byte* weights = stream.ring + stage * R::kStageBytes;
    const std::byte* scales = weights + R::kTiles * tile_bytes(type) + lane / 4 * (tile_scale_bytes(type) / 8);
#pragma unroll
    for (int32_t i = 0; i < R::kTiles; ++i) {
      if (k + i >= stream.num_k) break;
#pragma unroll
      for (int32_t half = 0; half < 2; ++half) {
        const int32_t group = (first_k + k + i) * 2 + half;
        const WeightFragment w =
            fragment_of<type>(weights + i * tile_bytes(type), scales + i * tile_scale_bytes(type), half);
        float2 x_sum{};
        if constexpr (type == WeightType::kAffine4Gs32) x_sum = sum_of(x, group);
        multiply_group<type, 2>(sum, w, fragment_of(x, group), x_sum);
      }
    }
    __syncwarp();
    if (lane == 0) stream.request();
    stage = (stage + 1) % R::kStages;
    if (stage == 0) parity ^= 1U;
  }
}

[[maybe_unused]] __device__ void store_tile(const MatmulArgs& args, const float4* sums, int32_t tile) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const int32_t token = lane % 4 * 2;
  if (token >= args.num_rows) return;
  float4 total = sums[lane];
#pragma unroll
  for (int32_t slice = 1; slice < kNumSlices; ++slice) {
    const float4 next = sums[slice * 32 + lane];
    total = {total.x + next.x, total.y + next.y, total.z + next.z, total.w + next.w};
  }
  store_rows(args, token, tile, lane / 4, total.x, total.z);
  if (token + 1 < args.num_rows) store_rows(args, token + 1, tile, lane / 4, total.y, total.w);
}

template <WeightType type>
__global__ void __launch_bounds__(kThreads, 5)
    stream_kernel(const __grid_constant__ MatmulArgs args, const __grid_constant__ SharedLayout layout) {
#if __CUDA_ARCH__ >= 900
  using R = Ring<type>;
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ Barrier full[kNumSlices][R::kStages];
  __shared__ float4 sums[2][kThreads];
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / 32;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const int32_t num_tiles = args.matrix.padded_rows / kTileRows;
  Stream<type> stream{.matrix = args.matrix,
                      .ring = shared + layout.rings_at + warp * R::kBytes,
                      .full = full[warp],
                      .num_tiles = num_tiles,
                      .num_k = args.matrix.padded_columns / kPaddedColumns};
  if (lane == 0) {
    for (Barrier& barrier : full[warp]) barrier.init(1);
    fence_barrier_init();
    for (int32_t s = 0; s < R::kStages; ++s) stream.request();
  }
  __syncwarp();
  start_next();
  wait_for_previous();
  load_activations<type>(args, layout, shared);
  const LaneActivations x(args, layout, shared);
  int32_t stage = 0;
  uint32_t parity = 0;
  int32_t round = 0;
  for (int32_t tile = static_cast<int32_t>(blockIdx.x); tile < num_tiles; tile += static_cast<int32_t>(gridDim.x)) {
    float sum[4] = {};
    multiply_slice<type>(sum, stream, stage, parity, x);
    float4* to = sums[round % 2];
    to[threadIdx.x] = {sum[0], sum[1], sum[2], sum[3]};
    __syncthreads();  // the next round's is between this round's reads and the writes that follow them
    if (warp == round % kNumSlices) store_tile(args, to, tile);
    ++round;
  }
#else
  __trap();  // chosen by the device, so code for it must be there: an error, not a result of nothing
#endif
}

template <WeightType type>
cudaError_t run(const MatmulArgs& args, int32_t num_blocks, const LaunchContext& context) {
  const SharedLayout layout = shared_layout<type>(args.matrix, args.num_rows);
  const cudaError_t error =
      cudaFuncSetAttribute(stream_kernel<type>, cudaFuncAttributeMaxDynamicSharedMemorySize, layout.total);
  if (error != cudaSuccess) return error;
  return launch(stream_kernel<type>,
                {.grid = dim3(static_cast<uint32_t>(num_blocks)),
                 .block = dim3(kThreads),
                 .shared_bytes = static_cast<size_t>(layout.total)},
                context, args, layout);
}

int32_t shared_bytes(const DeviceMatrix& matrix, int32_t num_rows) {
  switch (matrix.type) {
    case WeightType::kBf16: return shared_layout<WeightType::kBf16>(matrix, num_rows).total;
    case WeightType::kQ8_0: return shared_layout<WeightType::kQ8_0>(matrix, num_rows).total;
    case WeightType::kAffine4Gs32: return shared_layout<WeightType::kAffine4Gs32>(matrix, num_rows).total;
  }
  return 0;
}

}  // namespace

bool can_stream(const DeviceMatrix& matrix, int32_t num_rows) {
  return num_rows <= kMostTokens && int64_t{4} * num_rows * matrix.padded_columns <= kMostActivationBytes;
}

// Two or three blocks a multiprocessor, whichever leaves fewer of them without a tile in the last round.
int32_t plan_stream_blocks(const DeviceMatrix& matrix, int32_t num_rows, int32_t num_sms) {
  const int32_t tiles = matrix.padded_rows / kTileRows;
  const int32_t most = std::clamp(kSharedOfSm / shared_bytes(matrix, num_rows), 1, 3);
  if (tiles <= most * num_sms) return tiles;
  const auto wasted = [&](int32_t blocks) { return (tiles + blocks - 1) / blocks * blocks; };
  const int32_t fewer = std::max(1, most - 1) * num_sms;
  return wasted(fewer) < wasted(most * num_sms) ? fewer : most * num_sms;
}

cudaError_t generated_matmul_stream(const MatmulArgs& args, int32_t num_blocks, const LaunchContext& context) {
  switch (args.matrix.type) {
    case WeightType::kBf16: return run<WeightType::kBf16>(args, num_blocks, context);
    case WeightType::kQ8_0: return run<WeightType::kQ8_0>(args, num_blocks, context);
    case WeightType::kAffine4Gs32: return run<WeightType::kAffine4Gs32>(args, num_blocks, context);
  }
  return cudaErrorInvalidValue;
}

}  // namespace kipp::cuda
