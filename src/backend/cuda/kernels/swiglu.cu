// One thread for each element.
#include "backend/cuda/kernels/matmul_epilogue.cuh"
#include "backend/cuda/kernels/swiglu.h"

namespace kipp::cuda {
namespace {

constexpr int32_t kThreads = 256;

__global__ void swiglu_kernel(SwigluArgs args) {
  start_next();
  wait_for_previous();
  const int32_t c = static_cast<int32_t>(blockIdx.x) * kThreads + static_cast<int32_t>(threadIdx.x);
  const auto row = static_cast<int64_t>(blockIdx.y);
  if (c >= args.width) return;
  const float* gate = args.gate_up + row * args.gate_up_stride + c / 8 * 16 + c % 8;
  const float value = swiglu(sum_of_partials(gate, args.num_partials, args.partial_stride),
                             sum_of_partials(gate + 8, args.num_partials, args.partial_stride));
  store_activation(args.high, args.low, row * args.stride + c, value * kSwigluScale);
}

__global__ void sum_partials_kernel(SumPartialsArgs args) {
  start_next();
  wait_for_previous();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < args.count) args.out[i] = sum_of_partials(args.partials + i, args.num_partials, args.partial_stride);
}

uint32_t blocks_of(int64_t count) {
  return static_cast<uint32_t>((count + kThreads - 1) / kThreads);
}

}  // namespace

cudaError_t swiglu(const SwigluArgs& args, const LaunchContext& context) {
  return launch(swiglu_kernel,
                {.grid = dim3(blocks_of(args.width), static_cast<uint32_t>(args.num_rows)), .block = dim3(kThreads)},
                context, args);
}

cudaError_t sum_partials(const SumPartialsArgs& args, const LaunchContext& context) {
  return launch(sum_partials_kernel, {.grid = dim3(blocks_of(args.count)), .block = dim3(kThreads)}, context, args);
}

}  // namespace kipp::cuda
