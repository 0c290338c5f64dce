// Sums over the weight views; no byte of a weight is read.
#include "cli/model_cost.h"

namespace kipp::cli {
namespace {

int64_t num_weights(const WeightView& view) {
  return int64_t{view.rows} * view.columns;
}

int64_t stored_bytes(const WeightView& view) {
  return view.rows * weight_row_bytes(view.type, view.columns);
}

}  // namespace

ModelCost model_cost(const ModelWeights& weights, const Dimensions& dimensions) {
  constexpr int64_t kBf16Bytes = 2;
  ModelCost cost;
  for (const LayerWeights& layer : weights.layers) {
    for (const WeightView* view :
         {&layer.query_projection, &layer.key_projection, &layer.value_projection, &layer.output_projection,
          &layer.gate_projection, &layer.up_projection, &layer.down_projection}) {
      cost.projection_weights += num_weights(*view);
      cost.weight_bytes += stored_bytes(*view);
    }
  }
  cost.head_weights = num_weights(weights.output_head);
  cost.weight_bytes += stored_bytes(weights.output_head);
  cost.embedding_row_bytes = weight_row_bytes(weights.token_embedding.type, weights.token_embedding.columns);
  const auto num_layers = static_cast<int64_t>(weights.layers.size());
  cost.kv_bytes_per_position = 2 * num_layers * dimensions.kv_width() * kBf16Bytes;
  cost.attention_width = num_layers * dimensions.query_width();
  return cost;
}

double decode_bytes(const ModelCost& cost, int32_t num_sequences, double context) {
  const double per_sequence =
      static_cast<double>(cost.embedding_row_bytes) + static_cast<double>(cost.kv_bytes_per_position) * context;
  return static_cast<double>(cost.weight_bytes) + num_sequences * per_sequence;
}

double prefill_operations(const ModelCost& cost, int32_t num_tokens) {
  const double tokens = num_tokens;
  const double positions = tokens * (tokens + 1) / 2;  // Σ (p + 1)
  return 2 * static_cast<double>(cost.projection_weights) * tokens +
         4 * static_cast<double>(cost.attention_width) * positions + 2 * static_cast<double>(cost.head_weights);
}

}  // namespace kipp::cli
