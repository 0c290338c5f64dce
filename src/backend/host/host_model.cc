// Binding of weight views to addresses. ModelFile has checked every offset, size and type against the registry.
#include "backend/host/host_model.h"

#include "base/seeded_fault.h"

namespace kipp::host {
namespace {

Matrix bind_matrix(const ModelFile& file, const WeightView& view) {
  return {file.bytes().data() + view.offset, view.type, view.rows, view.columns};
}

const uint16_t* bind_bf16(const ModelFile& file, const WeightView& view) {
  return reinterpret_cast<const uint16_t*>(file.bytes().data() + view.offset);
}

Layer bind_layer(const ModelFile& file, const LayerWeights& weights) {
  const bool swapped = seeded(Fault::kGateUpSwapped);
  return {.attention_norm = bind_bf16(file, weights.attention_norm),
          .query_projection = bind_matrix(file, weights.query_projection),
          .key_projection = bind_matrix(file, weights.key_projection),
          .value_projection = bind_matrix(file, weights.value_projection),
          .query_norm = bind_bf16(file, weights.query_norm),
          .key_norm = bind_bf16(file, weights.key_norm),
          .output_projection = bind_matrix(file, weights.output_projection),
          .ffn_norm = bind_bf16(file, weights.ffn_norm),
          .gate_projection = bind_matrix(file, swapped ? weights.up_projection : weights.gate_projection),
          .up_projection = bind_matrix(file, swapped ? weights.gate_projection : weights.up_projection),
          .down_projection = bind_matrix(file, weights.down_projection)};
}

}  // namespace

HostModel bind_weights(const ModelFile& file) {
  const ModelWeights& weights = file.weights();
  HostModel model{.dimensions = file.info().dimensions,
                  .token_embedding = bind_bf16(file, weights.token_embedding),
                  .layers = {},
                  .output_norm = bind_bf16(file, weights.output_norm),
                  .output_head = bind_matrix(file, weights.output_head)};
  model.layers.reserve(weights.layers.size());
  for (const LayerWeights& layer : weights.layers) {
    model.layers.push_back(bind_layer(file, layer));
  }
  return model;
}

}  // namespace kipp::host
