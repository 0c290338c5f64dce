// A model's weights in device memory: where they lie, how much they take, and how they get there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "backend/cuda/device.h"
#include "backend/cuda/kernels/weight_tiles.h"
#include "gguf/model_file.h"
#include "kipp/error.h"

namespace kipp::cuda {

// A norm's weights, and the power of two that its output is multiplied with for FP16: |output| <= sqrt(columns) ·
// max |weight|, whatever the input, so that nothing can overflow.
struct DeviceNorm {
  const uint16_t* weight = nullptr;  // bf16
  float scale = 1.0F;
};

struct DeviceLayer {
  DeviceNorm attention_norm, ffn_norm;
  const uint16_t* query_norm = nullptr;  // [head_dim] bf16
  const uint16_t* key_norm = nullptr;
  DeviceMatrix query_key_value;  // rows: query heads, key heads, value heads
  DeviceMatrix output;
  DeviceMatrix gate_up;  // interleaved by eight (RowPlace)
  DeviceMatrix down;
};

struct DeviceWeights {
  DeviceMemory memory;
  const uint16_t* embedding = nullptr;  // [vocab][hidden] bf16, as in the artifact
  std::vector<DeviceLayer> layers;
  DeviceNorm output_norm;
  DeviceMatrix head;  // also of a tied embedding, which is thus held twice: exact as rows, in tiles as a matrix
};

// Device memory that upload_weights() needs: for the weights, and more for a while, as large as the largest matrix.
struct WeightBytes {
  size_t resident;
  size_t staging;
};
WeightBytes weight_bytes(const ModelFile& file);

// Bytes uploaded so far and in all; may be empty.
using UploadProgress = std::function<void(uint64_t uploaded, uint64_t size)>;

// Copies every tensor from the mapped file through pinned memory and packs it. Errors: kCapacity, kInternal.
Result<DeviceWeights> upload_weights(const ModelFile& file, const UploadProgress& progress);

}  // namespace kipp::cuda
