// Device buffers that every step computes in.
#pragma once

#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

#include "backend/backend.h"
#include "backend/cuda/device.h"
#include "backend/cuda/kernels/matmul.h"
#include "model/dimensions.h"

namespace kipp::cuda {

// Rows of one class that go through a layer's products together: of generated rows at most this many, since their
// products leave kNumSlices sums each.
inline constexpr int32_t kMaxGeneratedGroup = 256;
// Rows of logits of generated rows that are computed together, for the same reason.
inline constexpr int32_t kMaxHeadGroup = 64;

// Activations that a product reads, in two FP16 terms; columns beyond the matrix's are zero and stay so.
struct TermBuffer {
  __half* high = nullptr;  // [rows][stride]
  __half* low = nullptr;   // likewise
  int32_t stride = 0;

  Activations from_row(int32_t row) const {
    return {high + int64_t{row} * stride, low + int64_t{row} * stride, stride};
  }
};

// T: Limits::max_tokens_per_step, R: max_head_rows, both with room to round up to a multiple of 64.
struct Workspace {
  DeviceMemory memory;
  float* residual = nullptr;         // [T][hidden]
  float2* angles = nullptr;          // [T][head_dim / 2]
  TermBuffer normed;                 // [T][hidden]
  float* projected = nullptr;        // sums of the product under way, of any matrix but the head
  float* q = nullptr;                // [T][query_width]
  TermBuffer attended;               // [T][query_width]
  TermBuffer activated;              // [T][ffn]
  TermBuffer head_normed;            // [R][hidden]
  float* logits = nullptr;           // [R][vocab]
  float* head_partials = nullptr;    // [kNumSlices][kMaxHeadGroup][vocab]
  std::byte* dequantized = nullptr;  // FP16 tiles of the largest quantised matrix; null for BF16
  std::byte* attention = nullptr;    // scratch of attention_generated, for attention_rows
  int32_t attention_rows = 0;
};

size_t workspace_bytes(const Dimensions& dimensions, QuantScheme scheme, const Limits& limits);
// Errors: kCapacity; kUnsupported where the driver lacks what the device's kernels need.
Result<Workspace> make_workspace(const Dimensions& dimensions, QuantScheme scheme, const Limits& limits,
                                 const Device& device);

}  // namespace kipp::cuda
