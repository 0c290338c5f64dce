// The tensor list of a dense Qwen3 under the GGUF names.
#include "gguf/tensor_layout.h"

#include <fmt/format.h>

#include <array>

namespace kipp::gguf {
namespace {

constexpr int64_t kGroup = 32;  // weights that share a scale

// The place of each per-layer tensor in LayerWeights, in file order.
struct LayerEntry {
  std::string_view name;
  WeightView LayerWeights::* member;
};
constexpr std::array<LayerEntry, 11> kLayerEntries = {{{"attn_norm", &LayerWeights::attention_norm},
                                                       {"attn_q", &LayerWeights::query_projection},
                                                       {"attn_k", &LayerWeights::key_projection},
                                                       {"attn_v", &LayerWeights::value_projection},
                                                       {"attn_q_norm", &LayerWeights::query_norm},
                                                       {"attn_k_norm", &LayerWeights::key_norm},
                                                       {"attn_output", &LayerWeights::output_projection},
                                                       {"ffn_norm", &LayerWeights::ffn_norm},
                                                       {"ffn_gate", &LayerWeights::gate_projection},
                                                       {"ffn_up", &LayerWeights::up_projection},
                                                       {"ffn_down", &LayerWeights::down_projection}}};

WeightView matrix(WeightType type, int32_t rows, int32_t columns) {
  return WeightView{
      .offset = 0, .bytes = weight_bytes(type, rows, columns), .type = type, .rows = rows, .columns = columns};
}

WeightView norm(int32_t columns) {
  return matrix(WeightType::kBf16, 1, columns);
}

WeightType projection_type(QuantScheme scheme) {
  switch (scheme) {
    case QuantScheme::kBf16: return WeightType::kBf16;
    case QuantScheme::kQ8_0: return WeightType::kQ8_0;
    case QuantScheme::kAffine4Gs32: return WeightType::kAffine4Gs32;
  }
  return WeightType::kBf16;
}

LayerWeights layer_shapes(const Dimensions& d, WeightType projection) {
  return LayerWeights{.attention_norm = norm(d.hidden),
                      .query_projection = matrix(projection, d.query_width(), d.hidden),
                      .key_projection = matrix(projection, d.kv_width(), d.hidden),
                      .value_projection = matrix(projection, d.kv_width(), d.hidden),
                      .query_norm = norm(d.head_dim),
                      .key_norm = norm(d.head_dim),
                      .output_projection = matrix(projection, d.hidden, d.query_width()),
                      .ffn_norm = norm(d.hidden),
                      .gate_projection = matrix(projection, d.ffn, d.hidden),
                      .up_projection = matrix(projection, d.ffn, d.hidden),
                      .down_projection = matrix(projection, d.hidden, d.ffn)};
}

}  // namespace

std::vector<uint64_t> ExpectedTensor::file_dims() const {
  const auto columns = static_cast<uint64_t>(view.columns);
  if (is_norm) {
    return {columns};
  }
  return {columns, static_cast<uint64_t>(view.rows)};
}

std::vector<ExpectedTensor> expected_tensors(const Dimensions& dimensions, QuantScheme scheme) {
  const WeightView vocabulary = matrix(WeightType::kBf16, dimensions.vocab, dimensions.hidden);
  const LayerWeights shapes = layer_shapes(dimensions, projection_type(scheme));
  std::vector<ExpectedTensor> tensors;
  tensors.push_back({"token_embd.weight", vocabulary, false});
  for (int32_t layer = 0; layer < dimensions.num_layers; ++layer) {
    for (const LayerEntry& entry : kLayerEntries) {
      tensors.push_back(
          {fmt::format("blk.{}.{}.weight", layer, entry.name), shapes.*entry.member, entry.name.ends_with("norm")});
    }
  }
  tensors.push_back({"output_norm.weight", norm(dimensions.hidden), true});
  if (!dimensions.tied_head) {
    tensors.push_back({"output.weight", vocabulary, false});
  }
  return tensors;
}

GgmlType ggml_type(WeightType type) {
  switch (type) {
    case WeightType::kBf16: return GgmlType::kBf16;
    case WeightType::kQ8_0: return GgmlType::kQ8_0;
    case WeightType::kAffine4Gs32: return GgmlType::kQ4_1;
  }
  return GgmlType::kBf16;
}

uint64_t weight_bytes(WeightType type, int64_t rows, int64_t columns) {
  const auto num_groups = static_cast<uint64_t>(rows * (columns / kGroup));
  switch (type) {
    case WeightType::kBf16: return static_cast<uint64_t>(rows * columns) * 2;
    case WeightType::kQ8_0: return num_groups * (2 + 32);
    case WeightType::kAffine4Gs32: return num_groups * (2 + 2 + 16);
  }
  return 0;
}

ModelWeights assemble_weights(const Dimensions& dimensions, const std::vector<WeightView>& views) {
  ModelWeights weights;
  size_t next = 0;
  weights.token_embedding = views[next++];
  weights.layers.resize(static_cast<size_t>(dimensions.num_layers));
  for (LayerWeights& layer : weights.layers) {
    for (const LayerEntry& entry : kLayerEntries) {
      layer.*entry.member = views[next++];
    }
  }
  weights.output_norm = views[next++];
  weights.output_head = dimensions.tied_head ? weights.token_embedding : views[next++];
  return weights;
}

}  // namespace kipp::gguf
