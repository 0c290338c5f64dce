// One block for each row. The sum of squares is a tree of fixed shape, whatever else is in the step.
#include "backend/cuda/kernels/matmul_epilogue.cuh"
#include "backend/cuda/kernels/rms_norm.h"

namespace kipp::cuda {
namespace {

constexpr int32_t kThreads = 256;
constexpr int32_t kMaxPerThread = 20;  // hidden <= 5,120

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

__global__ void __launch_bounds__(kThreads) residual_norm_kernel(ResidualNormArgs args) {
  start_next();
  wait_for_previous();
  const auto out_row = static_cast<int64_t>(blockIdx.x);
  const int64_t row = args.rows == nullptr ? out_row : args.rows[out_row];
  float* residual = args.residual + row * args.hidden;
  float x[kMaxPerThread];
  float squares = 0.0F;
#pragma unroll
  for (int32_t i = 0; i < kMaxPerThread; ++i) {
    const int32_t c = static_cast<int32_t>(threadIdx.x) + i * kThreads;
    if (c >= args.hidden) break;
    x[i] = residual[c];
    if (args.delta != nullptr)
      x[i] += sum_of_partials(args.delta + row * args.hidden + c, args.num_partials, args.partial_stride);
    if (args.store_residual) residual[c] = x[i];
    squares += x[i] * x[i];
  }
  const float mean = sum_of_block(squares) / static_cast<float>(args.hidden);
  const float factor = 1.0F / sqrtf(mean + args.epsilon);
#pragma unroll
  for (int32_t i = 0; i < kMaxPerThread; ++i) {
    const int32_t c = static_cast<int32_t>(threadIdx.x) + i * kThreads;
    if (c >= args.hidden) break;
    const float weight = __uint_as_float(static_cast<uint32_t>(args.weight[c]) << 16);
    store_activation(args.high, args.low, out_row * args.stride + c, x[i] * factor * weight * args.scale);
  }
}

}  // namespace

cudaError_t residual_norm(const ResidualNormArgs& args, const LaunchContext& context) {
  if (args.hidden > kMaxPerThread * kThreads) return cudaErrorInvalidValue;
  return launch(residual_norm_kernel, {.grid = dim3(static_cast<uint32_t>(args.num_rows)), .block = dim3(kThreads)},
                context, args);
}

}  // namespace kipp::cuda
