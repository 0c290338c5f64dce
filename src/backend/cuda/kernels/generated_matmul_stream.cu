// Products of up to 8 generated rows with quantised weights where there is a copy engine, bound by reading the weights.
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
  static constexpr int32_t kTiles = type == WeightType::kQ8_0 ? 2 : 4;
  static constexpr int32_t kStages = 4;
  static constexpr int32_t kStageBytes = kTiles * (tile_bytes(type) + tile_scale_bytes(type));
  static constexpr int32_t kBytes = kStages * kStageBytes;
};

struct Ahead {
  int32_t stages;
  bool late_start;
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

  __device__ bool done() const { return tile >= num_tiles; }
  __device__ int64_t first() const {
    return (int64_t{tile} * kNumSlices + static_cast<int32_t>(threadIdx.x) / 32) * num_k + k;
  }
  __device__ void advance(int32_t count) {
    k += count;
    if (k == num_k) {
      k = 0;
      tile += static_cast<int32_t>(gridDim.x);
    }
  }

  // Asks for the next stage; only lane 0 does.
  __device__ void request() {
    if (done()) return;
    const int32_t count = min(R::kTiles, num_k - k);
    const uint32_t to = shared_address(ring + stage * R::kStageBytes);
    const auto weight_bytes = static_cast<uint32_t>(count * tile_bytes(type));
    const auto scale_bytes = static_cast<uint32_t>(count * tile_scale_bytes(type));
    full[stage].arrive_and_expect(weight_bytes + scale_bytes);
    copy_bulk(to, matrix.tiles + first() * tile_bytes(type), weight_bytes, full[stage]);
    copy_bulk(to + R::kTiles * tile_bytes(type), matrix.scales + first() * tile_scale_bytes(type), scale_bytes,
              full[stage]);
    advance(count);
    stage = (stage + 1) % R::kStages;
  }

  // Has the stages that will be asked for next brought nearer.
  __device__ void prefetch(int32_t num_stages) const {
    Stream ahead = *this;
    for (int32_t s = 0; s < num_stages && !ahead.done(); ++s) {
      const int32_t count = min(R::kTiles, num_k - ahead.k);
      prefetch_bulk(matrix.tiles + ahead.first() * tile_bytes(type), static_cast<uint32_t>(count * tile_bytes(type)));
      prefetch_bulk(matrix.scales + ahead.first() * tile_scale_bytes(type),
                    static_cast<uint32_t>(count * tile_scale_bytes(type)));
      ahead.advance(count);
    }
  }
};

// A warp's slice of the activations: [term][token][column]. Then, for AFFINE4, the sum of every group.
template <WeightType type>
__device__ void load_activations(const MatmulArgs& args, const SharedLayout& layout, std::byte* shared, Barrier& full) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const int32_t slice = static_cast<int32_t>(threadIdx.x) / 32;
  const int32_t columns = args.matrix.padded_columns / kNumSlices;
  const auto bytes = static_cast<uint32_t>(columns * 2);
  if (lane == 0) full.arrive_and_expect(static_cast<uint32_t>(2 * args.num_rows) * bytes);
  __syncwarp();
  if (lane < 2 * args.num_rows) {
    const __half* term = lane < args.num_rows ? args.x.high : args.x.low;
    copy_bulk(shared_address(shared + lane * layout.row_bytes + slice * columns * 2),
              term + lane % args.num_rows * int64_t{args.x.stride} + slice * columns, bytes, full);
  }
  full.wait(0);
  if constexpr (type == WeightType::kAffine4Gs32) {
    const int32_t groups = columns / kGroupColumns;
    auto* sums = reinterpret_cast<float*>(shared + layout.sums_at);
    for (int32_t i = lane; i < groups * args.num_rows; i += 32) {
      const int32_t token = i / groups;
      const int32_t group = slice * groups + i % groups;
      const std::byte* from = shared + token * layout.row_bytes + group * (kGroupColumns * 2);
      float part[4];
#pragma unroll
      for (int32_t t = 0; t < 4; ++t) {
        part[t] = sum_of_activations({*reinterpret_cast<const uint4*>(from + t * 16),
                                      *reinterpret_cast<const uint4*>(from + layout.term_bytes + t * 16)});
      }
      sums[group * layout.sum_stride + token] = sum_of_group(part[0], part[1], part[2], part[3]);
    }
    __syncwarp();
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

  __device__ ActivationFragment fragment(int32_t group) const {
    const std::byte* from = high + group * (kGroupColumns * 2);
    return {*reinterpret_cast<const uint4*>(from), *reinterpret_cast<const uint4*>(from + term_bytes)};
  }
  __device__ float2 sum(int32_t group) const { return *reinterpret_cast<const float2*>(sums + group * sum_stride); }
};

// `tiles` tiles of 64 columns of a stage. first_group: of the first among the activations' groups.
template <WeightType type, int32_t tiles>
__device__ void multiply_tiles(float (&sum)[4], const std::byte* weights, const std::byte* scales,
                               const LaneActivations& x, int32_t first_group) {
  WeightFragment w[2 * tiles];
  GroupParts part[2 * tiles];
  uint4 low[2 * tiles];
#pragma unroll
  for (int32_t i = 0; i < 2 * tiles; ++i) {
    w[i] = quantized_fragment<type>(weights + i / 2 * tile_bytes(type), scales + i / 2 * tile_scale_bytes(type), i % 2);
    const ActivationFragment activations = x.fragment(first_group + i);
    multiply_term<type>(part[i], w[i], activations.high);
    low[i] = activations.low;
  }
#pragma unroll
  for (int32_t i = 0; i < 2 * tiles; ++i) multiply_term<type>(part[i], w[i], low[i]);
#pragma unroll
  for (int32_t i = 0; i < 2 * tiles; ++i) {
    add_group<type>(sum, part[i], w[i], type == WeightType::kAffine4Gs32 ? x.sum(first_group + i) : float2{});
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
    const int32_t count = min(R::kTiles, stream.num_k - k);
    int32_t i = 0;
#pragma unroll 1
    for (; i + 2 <= count; i += 2) {
      multiply_tiles<type, 2>(sum, weights, scales, x, (first_k + k + i) * 2);
      weights += 2 * tile_bytes(type);
      scales += 2 * tile_scale_bytes(type);
    }
    if (i < count) multiply_tiles<type, 1>(sum, weights, scales, x, (first_k + k + i) * 2);
    __syncwarp();
    if (lane == 0) {
      stream.request();
      if (stream.done()) start_next();
    }
    stage = (stage + 1) % R::kStages;
    if (stage == 0) parity ^= 1U;
  }
}

__device__ void store_tile(const MatmulArgs& args, const float4* sums, int32_t tile) {
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
__global__ void __launch_bounds__(kThreads, 4)
    stream_kernel(const __grid_constant__ MatmulArgs args, const __grid_constant__ SharedLayout layout,
                  const __grid_constant__ Ahead ahead) {
#if __CUDA_ARCH__ >= 900
  using R = Ring<type>;
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ Barrier full[kNumSlices][R::kStages];
  __shared__ Barrier activations_full[kNumSlices];
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
    activations_full[warp].init(1);
    fence_barrier_init();
    for (int32_t s = 0; s < R::kStages; ++s) stream.request();
    stream.prefetch(ahead.stages);
  }
  __syncwarp();
  if (!ahead.late_start) start_next();
  wait_for_previous();
  load_activations<type>(args, layout, shared, activations_full[warp]);
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
#endif
}

template <WeightType type>
cudaError_t run(const MatmulArgs& args, const GeneratedPlan& plan, const LaunchContext& context) {
  const SharedLayout layout = shared_layout<type>(args.matrix, args.num_rows);
  const cudaError_t error =
      cudaFuncSetAttribute(stream_kernel<type>, cudaFuncAttributeMaxDynamicSharedMemorySize, layout.total);
  if (error != cudaSuccess) return error;
  return launch(stream_kernel<type>,
                {.grid = dim3(static_cast<uint32_t>(plan.num_blocks)),
                 .block = dim3(kThreads),
                 .shared_bytes = static_cast<size_t>(layout.total)},
                context, args, layout, Ahead{plan.prefetched_stages, plan.late_start});
}

int32_t shared_bytes(const DeviceMatrix& matrix, int32_t num_rows) {
  return matrix.type == WeightType::kQ8_0 ? shared_layout<WeightType::kQ8_0>(matrix, num_rows).total
                                          : shared_layout<WeightType::kAffine4Gs32>(matrix, num_rows).total;
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

cudaError_t generated_matmul_stream(const MatmulArgs& args, const GeneratedPlan& plan, const LaunchContext& context) {
  switch (args.matrix.type) {
    case WeightType::kBf16: return cudaErrorInvalidValue;
    case WeightType::kQ8_0: return run<WeightType::kQ8_0>(args, plan, context);
    case WeightType::kAffine4Gs32: return run<WeightType::kAffine4Gs32>(args, plan, context);
  }
  return cudaErrorInvalidValue;
}

}  // namespace kipp::cuda
