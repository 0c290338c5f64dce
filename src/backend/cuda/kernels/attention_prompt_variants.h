// The kernels that attention_prompt() chooses from, by the device alone.
#pragma once

#include "backend/cuda/kernels/attention_prompt.h"

namespace kipp::cuda {

// With mma.sync; from compute capability 8.0 on.
cudaError_t attention_prompt_sm80(const AttentionPromptArgs& args, const LaunchContext& context);

// With Hopper's products of a warpgroup.
cudaError_t attention_prompt_sm90(const AttentionPromptArgs& args, const LaunchContext& context);

// Whether this build has attention_prompt_sm90()'s code for the current device.
bool has_attention_prompt_sm90();

}  // namespace kipp::cuda
