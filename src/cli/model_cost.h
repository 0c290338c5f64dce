// What evaluating a model must read and compute at least, from the shapes alone: the limits that a speed is compared
// with. Norms, activations and the writing of K and V are left out; they are below a thousandth.
#pragma once

#include <cstdint>

#include "model/dimensions.h"
#include "model/weights.h"

namespace kipp::cli {

struct ModelCost {
  int64_t projection_weights = 0;     // of all layers, without the head
  int64_t head_weights = 0;           // vocab × hidden
  int64_t weight_bytes = 0;           // projections and head as stored: what any step reads once, for all its rows
  int64_t embedding_row_bytes = 0;    // what each token of a step reads of the embedding
  int64_t kv_bytes_per_position = 0;  // K and V of all layers in BF16
  int64_t attention_width = 0;        // query width × layers
};

ModelCost model_cost(const ModelWeights& weights, const Dimensions& dimensions);

// Tokens that each decode in one step, all with `context` positions to attend to (its own included).
double decode_bytes(const ModelCost& cost, int32_t num_sequences, double context);

// A prompt of num_tokens after nothing, with the logits of its last token: product and sum are two operations. The
// token at position p takes 2 · projections + 4 · attention width · (p + 1), since scores and weighted values are a
// product of the query width each.
double prefill_operations(const ModelCost& cost, int32_t num_tokens);

}  // namespace kipp::cli
