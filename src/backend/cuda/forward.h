// Qwen3's forward pass on the device, as a sequence of kernel launches. The order of buffers: backend/cuda/workspace.h.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/device.h"
#include "backend/cuda/kernels/query_key_value.h"
#include "backend/cuda/step_tables.h"
#include "backend/cuda/weights.h"
#include "backend/cuda/workspace.h"

namespace kipp::cuda {

// What report() counts: kernels that differ in what they compute or how.
enum class KernelClass : uint8_t {
  kEmbedding,
  kRotaryAngles,
  kResidualNorm,
  kMatmulFewBf16,
  kMatmulFewQ8,
  kMatmulFewAffine4,
  kMatmulManyBf16,
  kMatmulManyQ8,
  kMatmulManyAffine4,
  kMatmulPrompt,
  kDequantizeBf16,  // never runs: only so that a type's class can be computed
  kDequantizeQ8,
  kDequantizeAffine4,
  kQueryKeyValue,
  kAttentionGenerated,
  kAttentionPrompt,
  kSwiglu,
  kSumPartials,
  kSample,
  kStatelessAttention,
  kCount,
};
const char* kernel_name(KernelClass kernel);

using KernelCounts = std::array<uint64_t, static_cast<size_t>(KernelClass::kCount)>;

// Everything that a pass works on.
struct PassContext {
  const Dimensions& dims;
  const Device& device;
  const DeviceWeights& weights;
  Workspace& workspace;
  uint16_t* kv_pool;        // [layer][block][k|v][kv_head][32][head_dim] bf16
  int64_t kv_layer_stride;  // elements
  const float* frequencies; // [head_dim / 2] of the rotary embedding
  const int32_t* sampled;   // ids by head row of the step before
  cudaStream_t stream;
};

inline constexpr int64_t kKvBlockElements = int64_t{2} * kNumKvHeads * kBlockPositions * kHeadDim;  // of one layer

// Enqueues a whole step: tables lie on the device. Logits of head row r go to workspace.logits + r · vocab.
Result<void> forward_pass(const PassContext& context, const StepShape& shape, const StepTables& tables,
                          KernelCounts& counts);

}  // namespace kipp::cuda
