// Bytes and operations of qwen3-0.6b, against figures worked out by hand from its shapes.
#include "cli/model_cost.h"

#include <gtest/gtest.h>

namespace kipp::cli {
namespace {

WeightView matrix(int32_t rows, int32_t columns, WeightType type) {
  WeightView view{.type = type, .rows = rows, .columns = columns};
  view.bytes = static_cast<uint64_t>(rows * weight_row_bytes(type, columns));
  return view;
}

constexpr Dimensions kShape = {.num_layers = 28,
                               .hidden = 1024,
                               .ffn = 3072,
                               .num_query_heads = 16,
                               .context = 40960,
                               .rope_theta = 1e6F,
                               .tied_head = true};

ModelWeights weights_of(const Dimensions& shape, WeightType type) {
  ModelWeights weights;
  weights.token_embedding = matrix(shape.vocab, shape.hidden, WeightType::kBf16);
  weights.output_head = matrix(shape.vocab, shape.hidden, WeightType::kBf16);
  weights.output_norm = matrix(1, shape.hidden, WeightType::kBf16);
  LayerWeights layer;
  layer.attention_norm = layer.ffn_norm = matrix(1, shape.hidden, WeightType::kBf16);
  layer.query_norm = layer.key_norm = matrix(1, shape.head_dim, WeightType::kBf16);
  layer.query_projection = matrix(shape.query_width(), shape.hidden, type);
  layer.key_projection = layer.value_projection = matrix(shape.kv_width(), shape.hidden, type);
  layer.output_projection = matrix(shape.hidden, shape.query_width(), type);
  layer.gate_projection = layer.up_projection = matrix(shape.ffn, shape.hidden, type);
  layer.down_projection = matrix(shape.hidden, shape.ffn, type);
  weights.layers.assign(static_cast<size_t>(shape.num_layers), layer);
  return weights;
}

// A layer: Q and O 2048 × 1024 each, K and V 1024 × 1024 each, three of 3072 × 1024: 15,728,640 weights.
TEST(ModelCost, Bf16) {
  const ModelCost cost = model_cost(weights_of(kShape, WeightType::kBf16), kShape);
  EXPECT_EQ(cost.projection_weights, 440'401'920);  // 28 layers
  EXPECT_EQ(cost.head_weights, 155'582'464);        // 151,936 × 1024
  EXPECT_EQ(cost.weight_bytes, 1'191'968'768);
  EXPECT_EQ(cost.embedding_row_bytes, 2048);
  EXPECT_EQ(cost.kv_bytes_per_position, 114'688);  // 28 layers of K and V, 1024 wide, two bytes
  EXPECT_EQ(cost.attention_width, 57'344);         // 28 layers of 2048
}

// Of the same weights 34 bytes for 32 and 20 bytes for 32; the head stays BF16 here.
TEST(ModelCost, QuantisedProjections) {
  EXPECT_EQ(model_cost(weights_of(kShape, WeightType::kQ8_0), kShape).weight_bytes, 467'927'040 + 311'164'928);
  EXPECT_EQ(model_cost(weights_of(kShape, WeightType::kAffine4Gs32), kShape).weight_bytes, 275'251'200 + 311'164'928);
}

TEST(ModelCost, AStepReadsTheWeightsOnceAndEachContext) {
  const ModelCost cost = model_cost(weights_of(kShape, WeightType::kBf16), kShape);
  EXPECT_EQ(decode_bytes(cost, 1, 1), 1'191'968'768 + 2048 + 114'688);
  EXPECT_EQ(decode_bytes(cost, 1, 2080.5), 1'191'968'768 + 2048 + 238'608'384);
  EXPECT_EQ(decode_bytes(cost, 8, 100), 1'191'968'768 + 8 * (2048 + 11'468'800));
}

// 880,803,840 for the projections of a token, 229,376 for each position it attends to, 311,164,928 for one head row.
TEST(ModelCost, OperationsOfAPrompt) {
  const ModelCost cost = model_cost(weights_of(kShape, WeightType::kBf16), kShape);
  EXPECT_EQ(prefill_operations(cost, 1), 880'803'840 + 229'376 + 311'164'928);
  EXPECT_EQ(prefill_operations(cost, 2), 2 * 880'803'840.0 + 3 * 229'376 + 311'164'928);
  // Positions attended to: 512 · 513 / 2 = 131,328.
  EXPECT_EQ(prefill_operations(cost, 512), 512 * 880'803'840.0 + 131'328 * 229'376.0 + 311'164'928);
  // Operations are counted on weights, however they are stored.
  EXPECT_EQ(prefill_operations(model_cost(weights_of(kShape, WeightType::kQ8_0), kShape), 512),
            prefill_operations(cost, 512));
}

}  // namespace
}  // namespace kipp::cli
