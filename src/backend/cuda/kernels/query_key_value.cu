// One warp for each head of each row.
#include "backend/cuda/kernels/query_key_value.h"

#include "backend/cuda/kernels/heads.cuh"
#include "base/block_positions.h"

namespace kipp::cuda {
namespace {

constexpr int32_t kHeadDim = 128;
constexpr int32_t kKvHeads = 8;
constexpr int32_t kWarps = 8;

__global__ void rotary_angles_kernel(RotaryAnglesArgs args) {
  start_next();
  wait_for_previous();
  const auto row = static_cast<int64_t>(blockIdx.x);
  const int32_t i = static_cast<int32_t>(threadIdx.x);
  const float angle = static_cast<float>(args.positions[row]) * args.frequencies[i];
  float sine;
  float cosine;
  sincosf(angle, &sine, &cosine);
  args.angles[row * (kHeadDim / 2) + i] = make_float2(cosine, sine);
}

// Where head kv_index (0 … 7 of K, 8 … 15 of V) of a row lies in the pool.
__device__ uint16_t* place_in_pool(const QueryKeyValueArgs& args, int64_t row, int32_t kv_index) {
  const int32_t position = args.places.positions[row];
  const int64_t table = int64_t{args.places.sequences[row]} * args.places.table_stride;
  const int64_t block = args.places.block_tables[table + position / kBlockPositions];
  return args.kv.layer + block * args.kv.block_stride +
         (int64_t{kv_index} * kBlockPositions + position % kBlockPositions) * kHeadDim;
}

// What does not depend on the kernels before is read ahead of waiting for them: weights, and the tables of the step.
__global__ void __launch_bounds__(32 * kWarps) query_key_value_kernel(QueryKeyValueArgs args) {
  start_next();
  const int32_t head = static_cast<int32_t>(blockIdx.x) * kWarps + static_cast<int32_t>(threadIdx.x) / 32;
  if (head >= args.num_query_heads + 2 * kKvHeads) return;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const auto row = static_cast<int64_t>(blockIdx.y);
  const bool is_query = head < args.num_query_heads;
  const int32_t kv_index = head - args.num_query_heads;  // 0 … 7 K, 8 … 15 V
  const bool is_normalised = kv_index < kKvHeads;
  float weight[kLaneElements] = {};
  if (is_normalised) load_norm(weight, is_query ? args.heads.query_norm : args.heads.key_norm, lane);
  uint16_t* kv = is_query ? nullptr : place_in_pool(args, row, kv_index);
  wait_for_previous();
  float x[kLaneElements];
  load_head(x, args.heads, row, head, is_normalised ? &weight : nullptr, lane);
  if (!is_query) {
    store_head(kv, x, lane);
    return;
  }
  float* q = args.q + (row * args.num_query_heads + head) * kHeadDim + lane;
#pragma unroll
  for (int32_t i = 0; i < kLaneElements; ++i) q[32 * i] = x[i];
}

}  // namespace

cudaError_t rotary_angles(const RotaryAnglesArgs& args, const LaunchContext& context) {
  return launch(rotary_angles_kernel, {.grid = dim3(static_cast<uint32_t>(args.num_rows)), .block = dim3(kHeadDim / 2)},
                context, args);
}

cudaError_t query_key_value(const QueryKeyValueArgs& args, const LaunchContext& context) {
  const int32_t heads = args.num_query_heads + 2 * kKvHeads;
  return launch(
      query_key_value_kernel,
      {.grid = dim3(static_cast<uint32_t>((heads + kWarps - 1) / kWarps), static_cast<uint32_t>(args.num_rows)),
       .block = dim3(32 * kWarps)},
      context, args);
}

}  // namespace kipp::cuda
