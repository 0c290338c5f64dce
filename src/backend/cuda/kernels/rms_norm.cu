// One block for each row.
#include "backend/cuda/kernels/rms_norm.h"

#include "backend/cuda/kernels/norm_row.cuh"

namespace kipp::cuda {
namespace {

constexpr int32_t kThreads = 512;
using Row = NormRow<kThreads>;

__device__ float4 sum_of_partial_quads(const float* first, int32_t num_partials, int64_t stride) {
  float4 sum = *reinterpret_cast<const float4*>(first);
  for (int32_t p = 1; p < num_partials; ++p) {
    const float4 next = *reinterpret_cast<const float4*>(first + p * stride);
    sum = {sum.x + next.x, sum.y + next.y, sum.z + next.z, sum.w + next.w};
  }
  return sum;
}

// All loads come before the first store, which might write what they read as far as the compiler knows: one wait for
// memory, not one for each.
__global__ void __launch_bounds__(kThreads) residual_norm_kernel(ResidualNormArgs args) {
  __shared__ float scratch[Row::kLeaves / 32];
  uint2 weights[Row::kQuads];
  Row::load_weights(weights, args.weight, args.hidden);
  start_next();
  wait_for_previous();
  const auto out_row = static_cast<int64_t>(blockIdx.x);
  const int64_t row = args.rows == nullptr ? out_row : args.rows[out_row];
  float* residual = args.residual + row * args.hidden;
  float4 x[Row::kQuads] = {};
  float4 delta[Row::kQuads] = {};
#pragma unroll
  for (int32_t i = 0; i < Row::kQuads; ++i) {
    const int32_t c = Row::channel(i);
    if (c >= args.hidden) continue;
    x[i] = *reinterpret_cast<const float4*>(residual + c);
    if (args.delta != nullptr) {
      delta[i] = sum_of_partial_quads(args.delta + row * args.hidden + c, args.num_partials, args.partial_stride);
    }
  }
#pragma unroll
  for (int32_t i = 0; i < Row::kQuads; ++i) {
    x[i] = {x[i].x + delta[i].x, x[i].y + delta[i].y, x[i].z + delta[i].z, x[i].w + delta[i].w};
  }
  const float factor = Row::factor(x, args.hidden, args.epsilon, scratch);
#pragma unroll
  for (int32_t i = 0; i < Row::kQuads; ++i) {
    const int32_t c = Row::channel(i);
    if (c >= args.hidden) continue;
    if (args.store_residual) *reinterpret_cast<float4*>(residual + c) = x[i];
    Row::store(args.high, args.low, out_row * args.stride + c, x[i], weights[i], factor, args.scale);
  }
}

}  // namespace

cudaError_t residual_norm(const ResidualNormArgs& args, const LaunchContext& context) {
  if (args.hidden > kMaxNormWidth || args.hidden % 4 != 0) return cudaErrorInvalidValue;
  return launch(residual_norm_kernel, {.grid = dim3(static_cast<uint32_t>(args.num_rows)), .block = dim3(kThreads)},
                context, args);
}

}  // namespace kipp::cuda
