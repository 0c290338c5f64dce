// See forward.h. Rows go through a layer's products in groups of one class; attention, between them, needs the new K
// and V of all groups.
#include "backend/cuda/forward.h"

#include <algorithm>
#include <vector>

#include "backend/cuda/kernels/attention_generated.h"
#include "backend/cuda/kernels/attention_prompt.h"
#include "backend/cuda/kernels/embedding.h"
#include "backend/cuda/kernels/query_key_value.h"
#include "backend/cuda/scales.h"

namespace kipp::cuda {
namespace {

uint16_t* bits_of(const __half* values) {
  return reinterpret_cast<uint16_t*>(const_cast<__half*>(values));
}

// With more rows than these, a kernel that makes all rows' heads pays.
constexpr int32_t kMostRowsThatAttentionProjects = 8;

class Pass {
 public:
  Pass(const PassContext& context, const StepShape& shape, const StepTables& tables, KernelCounts& counts)
      : c_(context),
        dims_(context.dims),
        w_(context.workspace),
        shape_(shape),
        tables_(tables),
        attention_makes_heads_(shape.num_prompt == 0 && shape.num_generated <= kMostRowsThatAttentionProjects &&
                               shape.num_generated == shape.num_sequences),
        kernels_(context, counts) {}

  Result<void> run();

 private:
  std::vector<RowGroup> groups() const;
  bool all_are_heads(bool generated) const;
  void attention_input(const RowGroup& group, int32_t layer, const Sums& delta);
  ProjectedHeads projected_heads(const RowGroup& group, int32_t layer, const Sums& projected) const;
  void attention(const RowGroup& group, int32_t layer);
  void rest_of_layer(const RowGroup& group, int32_t layer);
  void head_input(const RowGroup& group, const Sums& delta);
  void head(const RowGroup& group);

  const PassContext& c_;
  const Dimensions& dims_;
  Workspace& w_;
  const StepShape& shape_;
  const StepTables& tables_;
  // q, and the new K and V. Possible if no row attends to another's: validate_batch() gives a sequence one span, which
  // has one row where rows are as many as sequences.
  bool attention_makes_heads_;
  Sums projected_;           // then: what it makes them of
  NormedRows norm_of_head_;  // of generated rows; without residual: they are normalised
  KernelSequence kernels_;
};

Result<void> Pass::run() {
  const std::vector<RowGroup> groups = this->groups();
  kernels_.start(KernelClass::kEmbedding, [&](const LaunchContext& launch) {
    return embedding(
        {c_.weights.embedding, tables_.ids, tables_.source, c_.sampled, w_.residual, shape_.num_rows(), dims_.hidden},
        launch);
  });
  kernels_.start(KernelClass::kRotaryAngles, [&](const LaunchContext& launch) {
    return rotary_angles({tables_.positions, c_.frequencies, w_.angles, shape_.num_rows()}, launch);
  });
  for (const RowGroup& group : groups) attention_input(group, 0, {});
  for (int32_t layer = 0; layer < dims_.num_layers; ++layer) {
    for (const RowGroup& group : groups) attention(group, layer);
    for (const RowGroup& group : groups) rest_of_layer(group, layer);
  }
  for (const RowGroup& group : groups) head(group);
  return kernels_.finish();
}

// Heads are computed with the last group of their class.
std::vector<RowGroup> Pass::groups() const {
  std::vector<RowGroup> groups;
  for (int32_t row = 0; row < shape_.num_generated; row += kMaxGeneratedGroup) {
    groups.push_back({row, std::min(kMaxGeneratedGroup, shape_.num_generated - row), 0, 0, true});
  }
  if (!groups.empty()) groups.back().num_heads = shape_.num_generated_heads;
  if (shape_.num_prompt > 0) {
    groups.push_back(
        {shape_.num_generated, shape_.num_prompt, shape_.num_generated_heads, shape_.num_prompt_heads, false});
  }
  return groups;
}

ProjectedHeads Pass::projected_heads(const RowGroup& group, int32_t layer_index, const Sums& projected) const {
  const DeviceLayer& layer = c_.weights.layers[static_cast<size_t>(layer_index)];
  return {.sums = projected.first,
          .partial_stride = projected.partial_stride,
          .num_partials = projected.num_partials,
          .width = layer.query_key_value.rows,
          .query_norm = layer.query_norm,
          .key_norm = layer.key_norm,
          .epsilon = dims_.rms_norm_epsilon,
          .angles = w_.angles + int64_t{group.first_row} * (dims_.head_dim / 2)};
}

// From the residual stream, which takes `delta` in first, to this layer's q, and its K and V in the pool.
void Pass::attention_input(const RowGroup& group, int32_t layer_index, const Sums& delta) {
  const DeviceLayer& layer = c_.weights.layers[static_cast<size_t>(layer_index)];
  const Input x = kernels_.norm_for(group, layer.query_key_value, layer.attention_norm, delta);
  projected_ = kernels_.multiply(group, layer.query_key_value, x);
  if (attention_makes_heads_) return;
  const int64_t row = group.first_row;
  kernels_.start(KernelClass::kQueryKeyValue, [&](const LaunchContext& launch) {
    return query_key_value({.heads = projected_heads(group, layer_index, projected_),
                            .places = {.positions = tables_.positions + row,
                                       .sequences = tables_.sequences + row,
                                       .block_tables = tables_.block_tables,
                                       .table_stride = shape_.max_blocks},
                            .kv = {c_.kv_pool + layer_index * c_.kv_layer_stride, kKvBlockElements},
                            .q = w_.q + row * dims_.query_width(),
                            .num_rows = group.num_rows,
                            .num_query_heads = dims_.num_query_heads},
                           launch);
  });
}

void Pass::attention(const RowGroup& group, int32_t layer) {
  const PagedKv kv{.pool = c_.kv_pool + layer * c_.kv_layer_stride,
                   .block_stride = kKvBlockElements,
                   .block_tables = tables_.block_tables,
                   .table_stride = shape_.max_blocks,
                   .num_blocks = static_cast<int32_t>(c_.kv_layer_stride / kKvBlockElements)};
  const int64_t row = group.first_row;
  const Activations out = w_.attended.from_row(group.first_row);
  if (group.generated) {
    const KernelClass kernel =
        attention_makes_heads_ ? KernelClass::kAttentionFromProjection : KernelClass::kAttentionGenerated;
    kernels_.start(kernel, [&](const LaunchContext& launch) {
      return attention_generated(
          {.kv = kv,
           .q = w_.q + row * dims_.query_width(),
           .positions = tables_.positions + row,
           .sequences = tables_.sequences + row,
           .settled = tables_.settled + row,
           .high = bits_of(out.high),
           .low = bits_of(out.low),
           .workspace = w_.attention,
           .workspace_rows = w_.attention_rows,
           .num_rows = group.num_rows,
           .num_query_heads = dims_.num_query_heads,
           .max_context = shape_.max_blocks * kBlockPositions,
           .heads = attention_makes_heads_ ? projected_heads(group, layer, projected_) : ProjectedHeads{},
           .new_kv = attention_makes_heads_ ? c_.kv_pool + layer * c_.kv_layer_stride : nullptr},
          launch);
    });
    return;
  }
  kernels_.start(KernelClass::kAttentionPrompt, [&](const LaunchContext& launch) {  // tiles name rows of the whole step
    return attention_prompt({.kv = kv,
                             .q = w_.q,
                             .tiles = tables_.tiles,
                             .high = bits_of(w_.attended.high),
                             .num_tiles = shape_.num_tiles,
                             .num_query_heads = dims_.num_query_heads},
                            launch);
  });
}

// What follows a layer's attention, and what comes before the next one's.
void Pass::rest_of_layer(const RowGroup& group, int32_t layer_index) {
  const DeviceLayer& layer = c_.weights.layers[static_cast<size_t>(layer_index)];
  const Sums attended = kernels_.add_product(group, layer.output, {w_.attended, group.first_row, kAttentionScale});
  kernels_.gate_and_up(group, layer.gate_up, kernels_.norm_for(group, layer.gate_up, layer.ffn_norm, attended));
  const Sums delta = kernels_.add_product(group, layer.down, {w_.activated, group.first_row, kSwigluScale});
  if (layer_index + 1 < dims_.num_layers) {
    attention_input(group, layer_index + 1, delta);
  } else {
    head_input(group, delta);
  }
}

// Whether all rows of a class are.
bool Pass::all_are_heads(bool generated) const {
  return generated ? shape_.num_generated_heads == shape_.num_generated : shape_.num_prompt_heads == shape_.num_prompt;
}

// From the residual stream, which takes `delta` in first, to what the head reads where all rows of the class are head
// rows; the head's kernel may do that itself, if the group is all of the class. Others have head_norm().
void Pass::head_input(const RowGroup& group, const Sums& delta) {
  const DeviceNorm& norm = c_.weights.output_norm;
  const bool all = all_are_heads(group.generated);
  if (group.generated && all && group.num_rows == shape_.num_generated) {
    norm_of_head_ = kernels_.norm_for(group, c_.weights.head, norm, delta).norm;
  } else if (all || delta.first != nullptr) {
    kernels_.norm(group, norm, delta);
  }
}

// Only rows that need logits pay for the head.
void Pass::head(const RowGroup& group) {
  if (group.num_heads == 0) return;
  const bool all = all_are_heads(group.generated);
  if (!all) kernels_.head_norm(group, tables_.head_rows + group.first_head);
  const TermBuffer& buffer = all ? w_.normed : w_.head_normed;
  const int32_t first_of_all = group.generated ? 0 : group.first_row;
  const int32_t first_row = all ? first_of_all : group.first_head;
  for (int32_t h = 0; h < group.num_heads; h += kMaxHeadGroup) {
    RowGroup part = group;
    part.num_rows = std::min(kMaxHeadGroup, group.num_heads - h);
    kernels_.multiply_head(
        part, {buffer, first_row + h, c_.weights.output_norm.scale, group.generated ? norm_of_head_ : NormedRows{}},
        w_.logits + int64_t{group.first_head + h} * dims_.vocab);
  }
}

}  // namespace

Result<void> forward_pass(const PassContext& context, const StepShape& shape, const StepTables& tables,
                          KernelCounts& counts) {
  return Pass(context, shape, tables, counts).run();
}

}  // namespace kipp::cuda
