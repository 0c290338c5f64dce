// Written to be read, not to be fast: one warp for each row and head, scores in memory, two passes.
#include "backend/cuda/kernels/heads.cuh"
#include "backend/cuda/kernels/matmul_epilogue.cuh"
#include "backend/cuda/kernels/stateless_attention.h"

namespace kipp::cuda {
namespace {

constexpr int32_t kHeadDim = 128;
constexpr int32_t kKvHeads = 8;

__global__ void split_heads_kernel(SplitHeadsArgs args) {
  start_next();
  wait_for_previous();
  const auto head = static_cast<int32_t>(blockIdx.x);
  const auto row = static_cast<int64_t>(blockIdx.y);
  const auto lane = static_cast<int32_t>(threadIdx.x);
  const int32_t kv_index = head - args.num_query_heads;
  const bool is_value = kv_index >= kKvHeads;
  float weight[kLaneElements] = {};
  if (!is_value) load_norm(weight, kv_index < 0 ? args.heads.query_norm : args.heads.key_norm, lane);
  float x[kLaneElements];
  load_head(x, args.heads, row, head, is_value ? nullptr : &weight, lane);
  float* to = args.q + (row * args.num_query_heads + head) * kHeadDim;
  if (kv_index >= 0) {
    to = (kv_index < kKvHeads ? args.k : args.v) + (row * kKvHeads + kv_index % kKvHeads) * kHeadDim;
  }
#pragma unroll
  for (int32_t i = 0; i < kLaneElements; ++i) {
    to[lane + 32 * i] = kv_index < 0 ? x[i] : __half2float(stored_kv(x[i]));
  }
}

__global__ void stateless_attention_kernel(StatelessAttentionArgs args) {
  start_next();
  wait_for_previous();
  const auto head = static_cast<int32_t>(blockIdx.x);
  const auto row = static_cast<int64_t>(blockIdx.y);
  const auto lane = static_cast<int32_t>(threadIdx.x);
  const int32_t kv_head = head / (args.num_query_heads / kKvHeads);
  const float* q = args.q + (row * args.num_query_heads + head) * kHeadDim + lane;
  float* scores = args.scores + (row * args.num_query_heads + head) * args.num_rows;
  float largest = -INFINITY;
  for (int64_t j = 0; j <= row; ++j) {
    const float* k = args.k + (j * kKvHeads + kv_head) * kHeadDim + lane;
    float product = 0.0F;
    for (int32_t i = 0; i < kHeadDim; i += 32) product += q[i] * k[i];
    const float score = sum_of_warp(product) * 0.08838834764831845F;  // 1 / sqrt(128)
    if (lane == 0) scores[j] = score;
    largest = fmaxf(largest, score);
  }
  __syncwarp();
  float total = 0.0F;
  float sum[kLaneElements] = {};
  for (int64_t j = 0; j <= row; ++j) {
    const float weight = expf(scores[j] - largest);
    total += weight;
    const float* v = args.v + (j * kKvHeads + kv_head) * kHeadDim + lane;
    for (int32_t i = 0; i < kLaneElements; ++i) sum[i] += weight * v[32 * i];
  }
  for (int32_t i = 0; i < kLaneElements; ++i) {
    store_activation(args.high, args.low, row * args.stride + head * kHeadDim + lane + 32 * i,
                     sum[i] / total * kAttentionScale);
  }
}

}  // namespace

cudaError_t split_heads(const SplitHeadsArgs& args, const LaunchContext& context) {
  const auto heads = static_cast<uint32_t>(args.num_query_heads + 2 * kKvHeads);
  return launch(split_heads_kernel, {.grid = dim3(heads, static_cast<uint32_t>(args.num_rows)), .block = dim3(32)},
                context, args);
}

cudaError_t stateless_attention(const StatelessAttentionArgs& args, const LaunchContext& context) {
  const dim3 grid(static_cast<uint32_t>(args.num_query_heads), static_cast<uint32_t>(args.num_rows));
  return launch(stateless_attention_kernel, {.grid = grid, .block = dim3(32)}, context, args);
}

}  // namespace kipp::cuda
