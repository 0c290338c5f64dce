// A block of the streaming kernel (generated_matmul_stream.cu): how its shared memory is laid out, its activations, and
// a warp's ring of weights.
#pragma once

#include <cstddef>

#include "backend/cuda/kernels/hopper.cuh"
#include "backend/cuda/kernels/matmul.h"
#include "backend/cuda/kernels/norm_row.cuh"
#include "backend/cuda/kernels/tensor_core.cuh"

namespace kipp::cuda {

inline constexpr int32_t kStreamThreads = 32 * kNumSlices;
inline constexpr int32_t kMostStreamStages = 8;
inline constexpr int32_t kGroupColumns = 32;

// A stage of a warp's ring: kTiles tiles of 64 columns, then their scales.
template <WeightType type>
struct StreamStage {
  static constexpr int32_t kTiles = type == WeightType::kAffine4Gs32 ? 4 : 2;
  static constexpr int32_t kBytes = kTiles * (tile_bytes(type) + tile_scale_bytes(type));
};

struct StreamLayout {
  int32_t row_bytes;  // of one term of one row of activations
  int32_t term_bytes;
  int32_t sums_at;  // of groups of activations: [padded_columns / 32][tokens rounded up to 2]
  int32_t sum_stride;
  int32_t rings_at;
  int32_t stages;  // of a ring
  int32_t total;
};

template <WeightType type>
StreamLayout stream_layout(const DeviceMatrix& matrix, int32_t num_rows, int32_t stages) {
  // Between the rows of activations, so that two rows' pieces do not meet in one bank.
  constexpr int32_t kPadding = 64;
  StreamLayout layout{};
  layout.row_bytes = matrix.padded_columns * 2 + kPadding;
  layout.term_bytes = num_rows * layout.row_bytes + (num_rows % 2 == 0 ? kPadding : 0);
  layout.sums_at = 2 * layout.term_bytes;
  layout.sum_stride = (num_rows + 1) / 2 * 2;
  const int32_t sum_bytes =
      type == WeightType::kAffine4Gs32 ? matrix.padded_columns / kGroupColumns * layout.sum_stride * 4 : 0;
  layout.rings_at = static_cast<int32_t>(padded(layout.sums_at + sum_bytes, 128));
  layout.stages = stages;
  layout.total = layout.rings_at + kNumSlices * stages * StreamStage<type>::kBytes;
  return layout;
}

// One warp's weights: its slice of all its tiles of rows, one after the other.
template <WeightType type>
struct WeightRing {
  using S = StreamStage<type>;
  const DeviceMatrix& matrix;
  std::byte* ring;
  Barrier* full;
  int32_t stages;
  int32_t num_k;  // tiles along a slice
  int32_t slice;
  int32_t tile = static_cast<int32_t>(blockIdx.x);
  int32_t k = 0;
  int32_t stage = 0;

  // Asks for the next stage; only lane 0 does.
  __device__ void request() {
    if (tile >= matrix.padded_rows / kTileRows) return;
    const int32_t count = min(S::kTiles, num_k - k);
    const int64_t first = (int64_t{tile} * kNumSlices + slice) * num_k + k;
    const uint32_t to = shared_address(ring + stage * S::kBytes);
    const auto weight_bytes = static_cast<uint32_t>(count * tile_bytes(type));
    const auto scale_bytes = static_cast<uint32_t>(count * tile_scale_bytes(type));
    full[stage].arrive_and_expect(weight_bytes + scale_bytes);
    copy_bulk(to, matrix.tiles + first * tile_bytes(type), weight_bytes, full[stage]);
    if constexpr (type != WeightType::kBf16) {
      copy_bulk(to + S::kTiles * tile_bytes(type), matrix.scales + first * tile_scale_bytes(type), scale_bytes,
                full[stage]);
    }
    k += count;
    if (k == num_k) {
      k = 0;
      tile += static_cast<int32_t>(gridDim.x);
    }
    if (++stage == stages) stage = 0;
  }
};

// [term][token][column].
[[maybe_unused]] __device__ inline void copy_activations(const MatmulArgs& args, const StreamLayout& layout,
                                                         std::byte* shared) {
  const int32_t pieces = args.matrix.padded_columns / 8;
  for (int32_t row = 0; row < 2 * args.num_rows; ++row) {
    const int32_t token = row % args.num_rows;
    const bool high = row < args.num_rows;
    const __half* from = (high ? args.x.high : args.x.low) + int64_t{token} * args.x.stride;
    std::byte* to = shared + token * layout.row_bytes + (high ? 0 : layout.term_bytes);
    for (int32_t piece = static_cast<int32_t>(threadIdx.x); piece < pieces; piece += kStreamThreads) {
      copy_async<16>(to + piece * 16, from + piece * 8);
    }
  }
  commit_copies();
  wait_for_copies<0>();
  __syncthreads();
}

// For AFFINE4: the sum of every group, [group][token].
[[maybe_unused]] __device__ inline void sum_activations(const MatmulArgs& args, const StreamLayout& layout,
                                                        std::byte* shared) {
  const int32_t groups = args.matrix.padded_columns / kGroupColumns;
  auto* sums = reinterpret_cast<float*>(shared + layout.sums_at);
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < groups * args.num_rows; i += kStreamThreads) {
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

// normalises: whether the kernel may be asked to; more rows than kMostNormedRows come normalised.
template <WeightType type, bool normalises>
__device__ void load_activations(const MatmulArgs& args, const StreamLayout& layout, std::byte* shared) {
  if (!normalises || args.norm.residual == nullptr) {
    wait_for_previous();
    copy_activations(args, layout, shared);
  } else if constexpr (normalises) {
    normalise_rows<kStreamThreads>(args.norm, args.num_rows, args.matrix.padded_columns,
                                   {shared, layout.row_bytes, layout.term_bytes});
  }
  if constexpr (type == WeightType::kAffine4Gs32) sum_activations(args, layout, shared);
}

// What a lane reads of its slice of the activations. Columns of the matrix unit beyond the last row get what an earlier
// one has: nothing comes of them.
template <bool paired>
struct LaneActivations {
  const std::byte* first;
  int32_t term_bytes;
  const float* sums;  // of tokens 2t and 2t + 1, or of token t
  int32_t sum_stride;

  __device__ LaneActivations(const MatmulArgs& args, const StreamLayout& layout, const std::byte* shared, int32_t slice)
      : term_bytes(layout.term_bytes), sum_stride(layout.sum_stride) {
    const int32_t first_column = slice * args.matrix.padded_columns / kNumSlices;
    const int32_t column = static_cast<int32_t>(threadIdx.x) % 32 / 4;
    const int32_t t = static_cast<int32_t>(threadIdx.x) % 4;
    const int32_t token = min(paired ? column / 2 : column, args.num_rows - 1);
    first = shared + token * layout.row_bytes + (paired ? column % 2 * term_bytes : 0) + first_column * 2 + t * 16;
    sums = reinterpret_cast<const float*>(shared + layout.sums_at) + first_column / kGroupColumns * sum_stride +
           (paired ? min(t, args.num_rows - 1) : min(2 * t, sum_stride - 2));
  }
};

}  // namespace kipp::cuda
