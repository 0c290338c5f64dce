// The heads of a step's rows as a layer's product leaves them.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace kipp::cuda {

// q and k of a row are its projected heads, normalised each and rotated; v is what was projected. All on the device.
struct ProjectedHeads {
  const float* sums = nullptr;  // [num_partials][num_rows][width]: query heads, key heads, value heads
  int64_t partial_stride = 0;
  int32_t num_partials = 1;
  int32_t width = 0;                     // (num_query_heads + 16) · 128
  const uint16_t* query_norm = nullptr;  // [128] bf16
  const uint16_t* key_norm = nullptr;    // [128] bf16
  float epsilon = 0.0F;
  const float2* angles = nullptr;  // [num_rows][64]
};

}  // namespace kipp::cuda
