// See forward.h. Rows go through a layer's products in groups of one class; attention, between them, needs the new K and
// V of all groups.
#include "backend/cuda/forward.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/cuda/kernels/attention_generated.h"
#include "backend/cuda/kernels/attention_prompt.h"
#include "backend/cuda/kernels/embedding.h"
#include "backend/cuda/kernels/matmul.h"
#include "backend/cuda/kernels/pack_weights.h"
#include "backend/cuda/kernels/rms_norm.h"
#include "backend/cuda/kernels/swiglu.h"
#include "backend/cuda/scales.h"

namespace kipp::cuda {
namespace {

uint16_t* bits_of(const __half* values) {
  return reinterpret_cast<uint16_t*>(const_cast<__half*>(values));
}

// Rows of one class that are neighbours on the device, and the head rows among them.
struct RowGroup {
  int32_t first_row, num_rows;
  int32_t first_head, num_heads;
  bool generated;
};

// Sums that a product left, for the kernel that reads them next.
struct Sums {
  const float* first;  // of the group's first row
  int64_t partial_stride;
  int32_t num_partials;
};

// What a product reads: rows of a buffer, and the power of two that they are multiplied with.
struct Input {
  const TermBuffer& buffer;
  int32_t first_row;
  float scale;
};

// Where a product's rows go.
struct Output {
  float* first;
  int64_t partial_stride;
};

// The kernel class of a matrix's type, given that of BF16.
KernelClass of_type(KernelClass bf16, WeightType type) {
  return static_cast<KernelClass>(static_cast<uint8_t>(bf16) + static_cast<uint8_t>(type));
}

class Pass {
 public:
  Pass(const PassContext& context, const StepShape& shape, const StepTables& tables, KernelCounts& counts)
      : c_(context), dims_(context.dims), w_(context.workspace), shape_(shape), tables_(tables), counts_(counts) {}

  Result<void> run();

 private:
  std::vector<RowGroup> groups() const;
  void attention_input(const RowGroup& group, int32_t layer, const Sums* delta);
  void attention(const RowGroup& group, int32_t layer);
  void rest_of_layer(const RowGroup& group, int32_t layer);
  void head(const RowGroup& group);

  void norm(const RowGroup& group, const DeviceNorm& norm, const Sums* delta);
  void head_norm(const RowGroup& group);
  void gate_and_up(const RowGroup& group, const DeviceMatrix& matrix, const Input& x);
  Sums multiply(const RowGroup& group, const DeviceMatrix& matrix, const Input& x);
  Sums multiply_generated(const MatmulArgs& args);
  void multiply_prompt(MatmulArgs args, const TermBuffer& x);
  MatmulArgs product(const RowGroup& group, const DeviceMatrix& matrix, const Input& x) const;

  // Starts a kernel unless one before it failed.
  template <typename Launch>
  void start(KernelClass kernel, const Launch& launch) {
    if (error_ != cudaSuccess) return;
    error_ = launch(LaunchContext{.stream = c_.stream, .overlap = started_ && c_.device.can_overlap()});
    failed_ = kernel;
    started_ = true;
    ++counts_[static_cast<size_t>(kernel)];
  }

  const PassContext& c_;
  const Dimensions& dims_;
  Workspace& w_;
  const StepShape& shape_;
  const StepTables& tables_;
  KernelCounts& counts_;
  bool started_ = false;  // the first kernel follows a copy, which it must wait for
  cudaError_t error_ = cudaSuccess;
  KernelClass failed_ = KernelClass::kCount;
};

Result<void> Pass::run() {
  const std::vector<RowGroup> groups = this->groups();
  start(KernelClass::kEmbedding, [&](const LaunchContext& launch) {
    return embedding({c_.weights.embedding, tables_.ids, tables_.source, c_.sampled, w_.residual, shape_.num_rows(),
                      dims_.hidden},
                     launch);
  });
  start(KernelClass::kRotaryAngles, [&](const LaunchContext& launch) {
    return rotary_angles({tables_.positions, c_.frequencies, w_.angles, shape_.num_rows()}, launch);
  });
  for (const RowGroup& group : groups) attention_input(group, 0, nullptr);
  for (int32_t layer = 0; layer < dims_.num_layers; ++layer) {
    for (const RowGroup& group : groups) attention(group, layer);
    for (const RowGroup& group : groups) rest_of_layer(group, layer);
  }
  for (const RowGroup& group : groups) head(group);
  return check(error_, fmt::format("starting {}", kernel_name(failed_)));
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

// From the residual stream, which takes `delta` in first, to this layer's q, and its K and V in the pool.
void Pass::attention_input(const RowGroup& group, int32_t layer_index, const Sums* delta) {
  const DeviceLayer& layer = c_.weights.layers[static_cast<size_t>(layer_index)];
  norm(group, layer.attention_norm, delta);
  const Sums projected =
      multiply(group, layer.query_key_value, {w_.normed, group.first_row, layer.attention_norm.scale});
  const int64_t row = group.first_row;
  start(KernelClass::kQueryKeyValue, [&](const LaunchContext& launch) {
    return query_key_value({.projected = projected.first,
                            .partial_stride = projected.partial_stride,
                            .num_partials = projected.num_partials,
                            .width = layer.query_key_value.rows,
                            .query_norm = layer.query_norm,
                            .key_norm = layer.key_norm,
                            .epsilon = dims_.rms_norm_epsilon,
                            .angles = w_.angles + row * (dims_.head_dim / 2),
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
                   .table_stride = shape_.max_blocks};
  const int64_t row = group.first_row;
  const Activations out = w_.attended.from_row(group.first_row);
  if (group.generated) {
    start(KernelClass::kAttentionGenerated, [&](const LaunchContext& launch) {
      return attention_generated({.kv = kv,
                                  .q = w_.q + row * dims_.query_width(),
                                  .positions = tables_.positions + row,
                                  .sequences = tables_.sequences + row,
                                  .high = bits_of(out.high),
                                  .low = bits_of(out.low),
                                  .workspace = w_.attention,
                                  .workspace_rows = w_.attention_rows,
                                  .num_rows = group.num_rows,
                                  .num_query_heads = dims_.num_query_heads,
                                  .max_context = shape_.max_blocks * kBlockPositions},
                                 launch);
    });
    return;
  }
  start(KernelClass::kAttentionPrompt, [&](const LaunchContext& launch) {  // tiles name rows of the whole step
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
  const Sums attended = multiply(group, layer.output, {w_.attended, group.first_row, kAttentionScale});
  norm(group, layer.ffn_norm, &attended);
  gate_and_up(group, layer.gate_up, {w_.normed, group.first_row, layer.ffn_norm.scale});
  const Sums delta = multiply(group, layer.down, {w_.activated, group.first_row, kSwigluScale});
  if (layer_index + 1 < dims_.num_layers) {
    attention_input(group, layer_index + 1, &delta);
  } else {
    norm(group, c_.weights.output_norm, &delta);
  }
}

// The residual stream of the group's rows takes `delta` in and is normalised.
void Pass::norm(const RowGroup& group, const DeviceNorm& norm, const Sums* delta) {
  const Sums none{};
  const Sums& sums = delta == nullptr ? none : *delta;
  const Activations out = w_.normed.from_row(group.first_row);
  start(KernelClass::kResidualNorm, [&](const LaunchContext& launch) {
    return residual_norm({.residual = w_.residual + int64_t{group.first_row} * dims_.hidden,
                          .delta = sums.first,
                          .partial_stride = sums.partial_stride,
                          .num_partials = sums.num_partials,
                          .store_residual = sums.first != nullptr,
                          .rows = nullptr,
                          .weight = norm.weight,
                          .epsilon = dims_.rms_norm_epsilon,
                          .scale = norm.scale,
                          .high = const_cast<__half*>(out.high),
                          .low = group.generated ? const_cast<__half*>(out.low) : nullptr,
                          .num_rows = group.num_rows,
                          .hidden = dims_.hidden,
                          .stride = out.stride},
                         launch);
  });
}

MatmulArgs Pass::product(const RowGroup& group, const DeviceMatrix& matrix, const Input& x) const {
  const bool fp16_tiles = !group.generated || matrix.type == WeightType::kBf16;
  return {.matrix = matrix,
          .x = x.buffer.from_row(x.first_row),
          .to = {},
          .out_scale = 1.0F / x.scale / (fp16_tiles ? matrix.fp16_scale : 1.0F),
          .num_rows = group.num_rows,
          .swiglu = false};
}

// Rows of sums, one behind the other, in w_.projected.
Sums Pass::multiply(const RowGroup& group, const DeviceMatrix& matrix, const Input& x) {
  MatmulArgs args = product(group, matrix, x);
  args.to = {.out = w_.projected,
             .partial_stride = int64_t{group.num_rows} * matrix.rows,
             .stride = matrix.rows,
             .width = matrix.rows};
  if (group.generated) return multiply_generated(args);
  multiply_prompt(args, x.buffer);
  return {w_.projected, 0, 1};
}

Sums Pass::multiply_generated(const MatmulArgs& args) {
  const GeneratedPlan plan = plan_generated_matmul(args.matrix, args.num_rows, c_.device.num_sms);
  const bool few = plan.num_partials == 1;
  start(of_type(few ? KernelClass::kMatmulFewBf16 : KernelClass::kMatmulManyBf16, args.matrix.type),
        [&](const LaunchContext& launch) { return generated_matmul(args, plan, launch); });
  return {args.to.out, args.to.partial_stride, plan.num_partials};
}

void Pass::multiply_prompt(MatmulArgs args, const TermBuffer& x) {
  if (args.matrix.type != WeightType::kBf16) {
    const DeviceMatrix quantized = args.matrix;
    start(of_type(KernelClass::kDequantizeBf16, quantized.type), [&](const LaunchContext& launch) {
      return dequantize({quantized, w_.dequantized, quantized.fp16_scale}, launch);
    });
    args.matrix.type = WeightType::kBf16;
    args.matrix.tiles = w_.dequantized;
    args.matrix.scales = nullptr;
  }
  start(KernelClass::kMatmulPrompt, [&](const LaunchContext& launch) {
    return c_.device.has_wgmma() ? prompt_matmul_wgmma(args, x.map, c_.device.num_sms, launch)
                                 : prompt_matmul_portable(args, launch);
  });
}

// From the normalised stream to the gated activation, which most products' kernels compute on their way out.
void Pass::gate_and_up(const RowGroup& group, const DeviceMatrix& matrix, const Input& x) {
  const Activations out = w_.activated.from_row(group.first_row);
  MatmulArgs args = product(group, matrix, x);
  args.swiglu = true;
  args.to = {.high = const_cast<__half*>(out.high),
             .low = group.generated ? const_cast<__half*>(out.low) : nullptr,
             .stride = out.stride,
             .width = dims_.ffn};
  if (!group.generated) {
    multiply_prompt(args, x.buffer);
    return;
  }
  if (plan_generated_matmul(matrix, group.num_rows, c_.device.num_sms).num_partials == 1) {
    multiply_generated(args);
    return;
  }
  const Sums sums = multiply(group, matrix, x);
  start(KernelClass::kSwiglu, [&](const LaunchContext& launch) {
    return swiglu({.gate_up = sums.first,
                   .partial_stride = sums.partial_stride,
                   .num_partials = sums.num_partials,
                   .gate_up_stride = matrix.rows,
                   .high = args.to.high,
                   .low = args.to.low,
                   .num_rows = group.num_rows,
                   .width = dims_.ffn,
                   .stride = out.stride},
                  launch);
  });
}

// Only rows that need logits pay for the head.
void Pass::head(const RowGroup& group) {
  if (group.num_heads == 0) return;
  // Where all rows of the class are head rows, the norm after the last layer was theirs.
  const bool all = group.num_heads == (group.generated ? shape_.num_generated : shape_.num_prompt);
  if (!all) head_norm(group);
  const TermBuffer& buffer = all ? w_.normed : w_.head_normed;
  const int32_t first_row = all ? (group.generated ? 0 : group.first_row) : group.first_head;
  for (int32_t h = 0; h < group.num_heads; h += kMaxHeadGroup) {
    RowGroup part = group;
    part.num_rows = std::min(kMaxHeadGroup, group.num_heads - h);
    MatmulArgs args = product(part, c_.weights.head, {buffer, first_row + h, c_.weights.output_norm.scale});
    float* logits = w_.logits + int64_t{group.first_head + h} * dims_.vocab;
    const int64_t count = int64_t{part.num_rows} * dims_.vocab;
    args.to = {.out = logits, .partial_stride = count, .stride = dims_.vocab, .width = dims_.vocab};
    if (!group.generated) {
      multiply_prompt(args, buffer);
      continue;
    }
    const bool partial = plan_generated_matmul(args.matrix, args.num_rows, c_.device.num_sms).num_partials > 1;
    if (partial) args.to.out = w_.head_partials;
    const Sums sums = multiply_generated(args);
    if (partial) {
      start(KernelClass::kSumPartials, [&](const LaunchContext& launch) {
        return sum_partials({sums.first, sums.partial_stride, sums.num_partials, logits, count}, launch);
      });
    }
  }
}

void Pass::head_norm(const RowGroup& group) {
  const Activations out = w_.head_normed.from_row(group.first_head);
  start(KernelClass::kResidualNorm, [&](const LaunchContext& launch) {
    return residual_norm({.residual = w_.residual,
                          .delta = nullptr,
                          .partial_stride = 0,
                          .num_partials = 0,
                          .store_residual = false,
                          .rows = tables_.head_rows + group.first_head,
                          .weight = c_.weights.output_norm.weight,
                          .epsilon = dims_.rms_norm_epsilon,
                          .scale = c_.weights.output_norm.scale,
                          .high = const_cast<__half*>(out.high),
                          .low = const_cast<__half*>(out.low),
                          .num_rows = group.num_heads,
                          .hidden = dims_.hidden,
                          .stride = out.stride},
                         launch);
  });
}

}  // namespace

const char* kernel_name(KernelClass kernel) {
  constexpr std::array kNames = {"embedding",
                                 "rotary_angles",
                                 "residual_norm",
                                 "matmul_few_bf16",
                                 "matmul_few_q8_0",
                                 "matmul_few_affine4_gs32",
                                 "matmul_many_bf16",
                                 "matmul_many_q8_0",
                                 "matmul_many_affine4_gs32",
                                 "matmul_prompt",
                                 "dequantize_bf16",
                                 "dequantize_q8_0",
                                 "dequantize_affine4_gs32",
                                 "query_key_value",
                                 "attention_generated",
                                 "attention_prompt",
                                 "swiglu",
                                 "sum_partials",
                                 "sample",
                                 "stateless_attention"};
  static_assert(kNames.size() == static_cast<size_t>(KernelClass::kCount));
  return kernel == KernelClass::kCount ? "nothing" : kNames[static_cast<size_t>(kernel)];
}

Result<void> forward_pass(const PassContext& context, const StepShape& shape, const StepTables& tables,
                          KernelCounts& counts) {
  return Pass(context, shape, tables, counts).run();
}

}  // namespace kipp::cuda
