// A model's weights in host memory: pointers into the mapped artifact.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gguf/model_file.h"
#include "model/dimensions.h"
#include "model/weights.h"

namespace kipp::host {

struct Matrix {
  const std::byte* data;  // rows × columns, stored as `type` says
  WeightType type;
  int32_t rows;
  int32_t columns;
};

struct Layer {
  const uint16_t* attention_norm;  // [hidden]
  Matrix query_projection;         // [query_width][hidden]
  Matrix key_projection;           // [kv_width][hidden]
  Matrix value_projection;         // [kv_width][hidden]
  const uint16_t* query_norm;      // [head_dim]
  const uint16_t* key_norm;        // [head_dim]
  Matrix output_projection;        // [hidden][query_width]
  const uint16_t* ffn_norm;        // [hidden]
  Matrix gate_projection;          // [ffn][hidden]
  Matrix up_projection;            // [ffn][hidden]
  Matrix down_projection;          // [hidden][ffn]
};

struct HostModel {
  Dimensions dimensions;
  const uint16_t* token_embedding;  // [vocab][hidden]
  std::vector<Layer> layers;        // [num_layers]
  const uint16_t* output_norm;      // [hidden]
  Matrix output_head;               // [vocab][hidden]
};

// The file must outlive the model.
HostModel bind_weights(const ModelFile& file);

}  // namespace kipp::host
