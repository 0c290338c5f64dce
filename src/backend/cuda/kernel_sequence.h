// Kernels one after the other on a stream, and the parts that every pass is made of: norms and products of a group of
// rows.
#pragma once

#include <array>
#include <cstdint>

#include "backend/cuda/device.h"
#include "backend/cuda/kernels/matmul.h"
#include "backend/cuda/kv_pool.h"
#include "backend/cuda/weights.h"
#include "backend/cuda/workspace.h"
#include "model/dimensions.h"

namespace kipp::cuda {

// What report() counts: kernels that differ in what they compute or how.
enum class KernelClass : uint8_t {
  kEmbedding,
  kRotaryAngles,
  kResidualNorm,
  kMatmulStreamBf16,
  kMatmulStreamQ8,
  kMatmulStreamAffine4,
  kMatmulStreamNormedBf16,
  kMatmulStreamNormedQ8,
  kMatmulStreamNormedAffine4,
  kMatmulStreamWideBf16,
  kMatmulStreamWideQ8,
  kMatmulStreamWideAffine4,
  kMatmulFewBf16,
  kMatmulFewQ8,
  kMatmulFewAffine4,
  kMatmulClusterBf16,
  kMatmulClusterQ8,
  kMatmulClusterAffine4,
  kMatmulManyBf16,
  kMatmulManyQ8,
  kMatmulManyAffine4,
  kMatmulPrompt,
  kDequantizeQ8,
  kDequantizeAffine4,
  kQueryKeyValue,
  kAttentionGenerated,
  kAttentionFromProjection,
  kAttentionPrompt,
  kSwiglu,
  kSumPartials,
  kSample,
  kStatelessAttention,
  kCount,
};
const char* kernel_name(KernelClass kernel);
// Whether a model of this scheme can reach the class on this device.
bool is_possible(KernelClass kernel, const Device& device, QuantScheme scheme);

using KernelCounts = std::array<uint64_t, static_cast<size_t>(KernelClass::kCount)>;

// Everything that a pass works on.
struct PassContext {
  const Dimensions& dims;
  const Device& device;
  const DeviceWeights& weights;
  Workspace& workspace;
  uint16_t* kv_pool;         // [layer][block][k|v][kv_head][32][head_dim] FP16
  int64_t kv_layer_stride;   // elements
  const float* frequencies;  // [head_dim / 2] of the rotary embedding
  const int32_t* sampled;    // ids by head row of the step before
  cudaStream_t stream;
};

// Rows of one class that are neighbours on the device, and the head rows that are computed with them.
struct RowGroup {
  int32_t first_row, num_rows;
  int32_t first_head, num_heads;
  bool generated;
};

// Sums that a product left, for the kernel that reads them next.
struct Sums {
  const float* first = nullptr;  // of the group's first row; null: none
  int64_t partial_stride = 0;
  int32_t num_partials = 0;
};

// What a product reads: rows of a buffer, and the power of two that they are multiplied with; or rows of the residual
// stream that its kernel normalises itself.
struct Input {
  const TermBuffer& buffer;
  int32_t first_row;
  float scale;
  NormedRows norm = {};
};

class KernelSequence {
 public:
  KernelSequence(const PassContext& context, KernelCounts& counts) : context_(context), counts_(counts) {}

  // Starts a kernel unless one before it failed. launch(const LaunchContext&) -> cudaError_t.
  template <typename Launch>
  void start(KernelClass kernel, const Launch& launch) {
    if (error_ != cudaSuccess) return;
    error_ = launch(LaunchContext{.stream = context_.stream, .overlap = started_ && context_.device.can_overlap()});
    failed_ = kernel;
    started_ = true;
    ++counts_[static_cast<size_t>(kernel)];
  }

  // The residual stream of the group's rows takes `delta` in and is normalised into workspace.normed.
  void norm(const RowGroup& group, const DeviceNorm& norm, const Sums& delta);
  // The same for a product with `reader`, whose kernel may be able to do it: then nothing is started. The rows from
  // `group.first_row` of the residual stream must not change until that product has been started.
  Input norm_for(const RowGroup& group, const DeviceMatrix& reader, const DeviceNorm& norm, const Sums& delta);
  // Only the group's head rows, into workspace.head_normed. rows: [num_heads] on the device.
  void head_norm(const RowGroup& group, const int32_t* rows);
  // Rows of sums, one behind the other, in workspace.projected.
  Sums multiply(const RowGroup& group, const DeviceMatrix& matrix, const Input& x);
  // A product that the residual stream takes in: at once, or by the norm that gets what is returned.
  Sums add_product(const RowGroup& group, const DeviceMatrix& matrix, const Input& x);
  // From the normalised stream to the gated activation, in workspace.activated.
  void gate_and_up(const RowGroup& group, const DeviceMatrix& matrix, const Input& x);
  // Logits of group.num_rows rows of x, at most kMaxHeadGroup.
  void multiply_head(const RowGroup& group, const Input& x, float* logits);

  // The first error of a launch, with the kernel's name.
  Result<void> finish() const;

 private:
  MatmulArgs product(const RowGroup& group, const DeviceMatrix& matrix, const Input& x) const;
  Sums multiply_generated(const MatmulArgs& args);
  void multiply_prompt(MatmulArgs args);
  GeneratedPlan plan(const RowGroup& group, const DeviceMatrix& matrix) const;
  bool leaves_partials(const RowGroup& group, const DeviceMatrix& matrix) const;

  const PassContext& context_;
  KernelCounts& counts_;
  bool started_ = false;  // the first kernel follows a copy, which it must wait for
  cudaError_t error_ = cudaSuccess;
  KernelClass failed_ = KernelClass::kCount;
};

}  // namespace kipp::cuda
