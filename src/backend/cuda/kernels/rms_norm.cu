// One block for each row. The sum of squares is a tree of fixed shape, whatever else is in the step.
#include "backend/cuda/kernels/matmul_epilogue.cuh"
#include "backend/cuda/kernels/rms_norm.h"

namespace kipp::cuda {
namespace {

constexpr int32_t kThreads = 512;
constexpr int32_t kMaxHidden = 5120;
constexpr int32_t kQuads = (kMaxHidden / 4 + kThreads - 1) / kThreads;  // of four channels, a thread's most

__device__ float sum_of_block(float value) {
  __shared__ float warps[kThreads / 32];
#pragma unroll
  for (int32_t step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xFFFFFFFFU, value, step);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0.0F;
#pragma unroll
  for (int32_t w = 0; w < kThreads / 32; ++w) sum += warps[w];
  return sum;
}

__device__ float4 sum_of_partial_quads(const float* first, int32_t num_partials, int64_t stride) {
  float4 sum = *reinterpret_cast<const float4*>(first);
  for (int32_t p = 1; p < num_partials; ++p) {
    const float4 next = *reinterpret_cast<const float4*>(first + p * stride);
    sum = {sum.x + next.x, sum.y + next.y, sum.z + next.z, sum.w + next.w};
  }
  return sum;
}

__device__ float widened(uint32_t bits) {
  return __uint_as_float(bits << 16);
}

// All loads come before the first store, which might write what they read as far as the compiler knows: one wait for
// memory, not one for each.
__global__ void __launch_bounds__(kThreads) residual_norm_kernel(ResidualNormArgs args) {
  const auto index = static_cast<int32_t>(threadIdx.x);
  uint2 weights[kQuads] = {};
#pragma unroll
  for (int32_t i = 0; i < kQuads; ++i) {
    const int32_t c = 4 * (index + i * kThreads);
    if (c < args.hidden) weights[i] = *reinterpret_cast<const uint2*>(args.weight + c);
  }
  start_next();
  wait_for_previous();
  const auto out_row = static_cast<int64_t>(blockIdx.x);
  const int64_t row = args.rows == nullptr ? out_row : args.rows[out_row];
  float* residual = args.residual + row * args.hidden;
  float4 x[kQuads] = {};
  float4 delta[kQuads] = {};
#pragma unroll
  for (int32_t i = 0; i < kQuads; ++i) {
    const int32_t c = 4 * (index + i * kThreads);
    if (c >= args.hidden) continue;
    x[i] = *reinterpret_cast<const float4*>(residual + c);
    if (args.delta != nullptr) {
      delta[i] = sum_of_partial_quads(args.delta + row * args.hidden + c, args.num_partials, args.partial_stride);
    }
  }
  float squares = 0.0F;
#pragma unroll
  for (int32_t i = 0; i < kQuads; ++i) {
    x[i] = {x[i].x + delta[i].x, x[i].y + delta[i].y, x[i].z + delta[i].z, x[i].w + delta[i].w};
    squares += (x[i].x * x[i].x + x[i].y * x[i].y) + (x[i].z * x[i].z + x[i].w * x[i].w);
  }
  const float mean = sum_of_block(squares) / static_cast<float>(args.hidden);
  const float factor = 1.0F / sqrtf(mean + args.epsilon);
#pragma unroll
  for (int32_t i = 0; i < kQuads; ++i) {
    const int32_t c = 4 * (index + i * kThreads);
    if (c >= args.hidden) continue;
    if (args.store_residual) *reinterpret_cast<float4*>(residual + c) = x[i];
    const float values[4] = {x[i].x * factor * widened(weights[i].x & 0xFFFFU) * args.scale,
                             x[i].y * factor * widened(weights[i].x >> 16) * args.scale,
                             x[i].z * factor * widened(weights[i].y & 0xFFFFU) * args.scale,
                             x[i].w * factor * widened(weights[i].y >> 16) * args.scale};
    store_activations(args.high, args.low, out_row * args.stride + c, values);
  }
}

}  // namespace

cudaError_t residual_norm(const ResidualNormArgs& args, const LaunchContext& context) {
  if (args.hidden > kMaxHidden || args.hidden % 4 != 0) return cudaErrorInvalidValue;
  return launch(residual_norm_kernel, {.grid = dim3(static_cast<uint32_t>(args.num_rows)), .block = dim3(kThreads)},
                context, args);
}

}  // namespace kipp::cuda
