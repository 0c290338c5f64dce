// The shape of a Qwen3 decoder, as every backend needs it.
#pragma once

#include <cstdint>

#include "kipp_checkpoints.h"

namespace kipp {

struct Dimensions {
  int32_t num_layers;
  int32_t hidden;
  int32_t ffn;
  int32_t num_query_heads;
  int32_t num_kv_heads = kNumKvHeads;
  int32_t head_dim = kHeadDim;
  int32_t vocab = kVocabSize;
  int32_t context;
  float rope_theta;
  float rms_norm_epsilon = kRmsNormEpsilon;
  bool tied_head;

  constexpr int32_t query_width() const { return num_query_heads * head_dim; }  // not the hidden width
  constexpr int32_t kv_width() const { return num_kv_heads * head_dim; }
};

// Weights of all matrices and norms; a tied head is counted once.
constexpr int64_t num_parameters(const Dimensions& d) {
  const int64_t attention = int64_t{d.hidden} * (2 * d.query_width() + 2 * d.kv_width()) + 2 * d.head_dim;
  const int64_t layer = attention + int64_t{3} * d.hidden * d.ffn + int64_t{2} * d.hidden;
  const int64_t embedding = int64_t{d.vocab} * d.hidden;
  return d.num_layers * layer + (d.tied_head ? 1 : 2) * embedding + d.hidden;
}

// num_layers < 0: the checkpoint's own; a reduced-depth synthetic twin overrides it.
constexpr Dimensions dimensions_of(const Checkpoint& checkpoint, int32_t num_layers = -1) {
  return Dimensions{.num_layers = num_layers < 0 ? checkpoint.num_layers : num_layers,
                    .hidden = checkpoint.hidden,
                    .ffn = checkpoint.ffn,
                    .num_query_heads = checkpoint.num_query_heads,
                    .context = checkpoint.context,
                    .rope_theta = checkpoint.rope_theta,
                    .tied_head = checkpoint.tied_head};
}

}  // namespace kipp
