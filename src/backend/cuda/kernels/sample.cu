// The order of the sampler's kernels, the shape of their grids, and the layout of the workspace.
#include "backend/cuda/kernels/sample.h"

#include <algorithm>

#include "backend/cuda/kernels/sample_kernels.h"
#include "backend/cuda/kernels/sample_row.cuh"

namespace kipp::cuda {
namespace {

// Enough blocks to keep an H200 busy (132 multiprocessors of 4 blocks), no more than a row can use.
LaunchShape shape_of(int32_t num_rows) {
  constexpr int32_t kBlocks = 512;
  constexpr int32_t kMinChunks = 8;
  const int32_t chunks = std::clamp(kBlocks / num_rows, kMinChunks, kMaxChunks);
  return {.grid = dim3(static_cast<uint32_t>(chunks), static_cast<uint32_t>(num_rows)),
          .block = dim3(static_cast<uint32_t>(kSampleThreads))};
}

bool is_valid(const SampleArgs& args) {
  constexpr int32_t kMaxRows = 65535;  // of a grid's second dimension
  const auto misalignment = reinterpret_cast<uintptr_t>(args.logits) % sizeof(float4);
  return args.num_rows >= 0 && args.num_tokens >= 1 && args.num_tokens <= kMaxCandidates &&
         args.stride >= args.num_tokens && args.stride % 4 == 0 && misalignment == 0 && args.workspace.num_rows >= 1 &&
         args.workspace.num_rows <= kMaxRows && reinterpret_cast<uintptr_t>(args.workspace.data) % 128 == 0;
}

// Calls once for each turn of as many rows as the workspace has room for.
template <typename Run>
cudaError_t for_each_turn(const SampleArgs& args, const SampleBatch& batch, Run run) {
  if (!is_valid(args)) {
    return cudaErrorInvalidValue;
  }
  for (int32_t first = 0; first < args.num_rows; first += args.workspace.num_rows) {
    SampleKernelArgs turn{args, batch};
    turn.args.num_rows = std::min(args.workspace.num_rows, args.num_rows - first);
    turn.args.logits += int64_t{first} * args.stride;
    turn.args.results += first;
    turn.args.ids += first;
    turn.batch.params = batch.params == nullptr ? nullptr : batch.params + first;
    if (const cudaError_t error = run(turn); error != cudaSuccess) {
      return error;
    }
  }
  return cudaSuccess;
}

}  // namespace

size_t sample_workspace_bytes(int32_t num_rows, int32_t num_tokens) {
  return static_cast<size_t>(num_rows) * row_bytes(num_tokens);
}

cudaError_t clear_sample_workspace(const SampleWorkspace& workspace, int32_t num_tokens, cudaStream_t stream) {
  return cudaMemsetAsync(workspace.data, 0, sample_workspace_bytes(workspace.num_rows, num_tokens), stream);
}

cudaError_t sample_greedy(const SampleArgs& args, const LaunchContext& context) {
  return for_each_turn(args, SampleBatch{}, [&](const SampleKernelArgs& turn) {
    return launch_greedy(turn, context, shape_of(turn.args.num_rows));
  });
}

cudaError_t sample(const SampleArgs& args, const SampleBatch& batch, const LaunchContext& context) {
  struct Stage {
    bool needed;
    SampleKernelLauncher* start;
  };
  const Stage stages[] = {
      {true, launch_prepare},
      {batch.cuts, launch_weigh},
      {batch.cuts_by_weight, launch_refine},
      {batch.draws, launch_draw},
      {batch.logprobs, launch_sum_logprobs},
      {batch.top_logprobs, launch_top_logprobs},
  };
  return for_each_turn(args, batch, [&](const SampleKernelArgs& turn) {
    for (const Stage& stage : stages) {
      if (stage.needed) {
        if (const cudaError_t error = stage.start(turn, context, shape_of(turn.args.num_rows)); error != cudaSuccess) {
          return error;
        }
      }
    }
    return cudaSuccess;
  });
}

}  // namespace kipp::cuda
