// The kernels that sample.cu strings together; grid: (chunk, row).
#pragma once

#include "backend/cuda/kernels/sample.h"

namespace kipp::cuda {

struct SampleKernelArgs {
  SampleArgs args;
  SampleBatch batch;
};

using SampleKernelLauncher = cudaError_t(const SampleKernelArgs& args, const LaunchContext& context,
                                         const LaunchShape& shape);
SampleKernelLauncher launch_greedy;
SampleKernelLauncher launch_prepare;
SampleKernelLauncher launch_weigh;
SampleKernelLauncher launch_refine;
SampleKernelLauncher launch_draw;
SampleKernelLauncher launch_sum_logprobs;
SampleKernelLauncher launch_top_logprobs;

}  // namespace kipp::cuda
