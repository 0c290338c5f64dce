// Chooses the kernel: one device always uses the same.
#include "backend/cuda/kernels/attention_prompt.h"

#include "backend/cuda/kernels/attention_prompt_variants.h"

namespace kipp::cuda {

cudaError_t attention_prompt(const AttentionPromptArgs& args, const LaunchContext& context) {
  return has_attention_prompt_sm90() ? attention_prompt_sm90(args, context) : attention_prompt_sm80(args, context);
}

}  // namespace kipp::cuda
