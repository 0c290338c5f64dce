// Where each weight lies in an artifact. A view is an offset, not a pointer: the CPU maps, Metal binds offsets, CUDA
// uploads and may repack, tensor parallelism takes slices.
#pragma once

#include <cstdint>
#include <vector>

namespace kipp {

// Storage of a matrix. One row is stored after the other without padding.
enum class WeightType : uint8_t {
  kBf16,         // 2 bytes a weight
  kQ8_0,         // 32 weights: fp16 scale, 32 × int8 (34 bytes)
  kAffine4Gs32,  // 32 weights: fp16 scale, fp16 bias, 16 bytes of nibbles (20 bytes); w = scale·q + bias. Lossy
};

// Bytes of one row of a matrix.
constexpr int64_t weight_row_bytes(WeightType type, int32_t columns) {
  switch (type) {
    case WeightType::kBf16: return int64_t{columns} * 2;
    case WeightType::kQ8_0: return int64_t{columns} / 32 * 34;
    case WeightType::kAffine4Gs32: return int64_t{columns} / 32 * 20;
  }
  return 0;
}

struct WeightView {
  uint64_t offset = 0;  // bytes from the start of the file; a multiple of 128
  uint64_t bytes = 0;
  WeightType type = WeightType::kBf16;
  int32_t rows = 0;     // output features; 1 for a norm
  int32_t columns = 0;  // input features
};

struct LayerWeights {
  WeightView attention_norm;     // [1][hidden]
  WeightView query_projection;   // [query_width][hidden]
  WeightView key_projection;     // [kv_width][hidden]
  WeightView value_projection;   // [kv_width][hidden]
  WeightView query_norm;         // [1][head_dim]
  WeightView key_norm;           // [1][head_dim]
  WeightView output_projection;  // [hidden][query_width]
  WeightView ffn_norm;           // [1][hidden]
  WeightView gate_projection;    // [ffn][hidden]
  WeightView up_projection;      // [ffn][hidden]
  WeightView down_projection;    // [hidden][ffn]
};

struct ModelWeights {
  WeightView token_embedding;        // [vocab][hidden]
  std::vector<LayerWeights> layers;  // [num_layers]
  WeightView output_norm;            // [1][hidden]
  WeightView output_head;            // [vocab][hidden]; equal to token_embedding when tied
};

}  // namespace kipp
