// See kernel_sequence.h. Which kernel a row class and a weight type take is decided here.
#include "backend/cuda/kernel_sequence.h"

#include <fmt/format.h>

#include <array>

#include "backend/cuda/kernels/pack_weights.h"
#include "backend/cuda/kernels/rms_norm.h"
#include "backend/cuda/kernels/swiglu.h"

namespace kipp::cuda {
namespace {

// The kernel class of a matrix's type, given that of BF16.
KernelClass of_type(KernelClass bf16, WeightType type) {
  return static_cast<KernelClass>(static_cast<uint8_t>(bf16) + static_cast<uint8_t>(type));
}

KernelClass class_of(const GeneratedPlan& plan, const MatmulArgs& args) {
  const WeightType type = args.matrix.type;
  if (plan.stream.num_blocks > 0) {
    if (args.norm.residual != nullptr) return of_type(KernelClass::kMatmulStreamNormedBf16, type);
    return of_type(
        args.num_rows <= kMostPairedRows ? KernelClass::kMatmulStreamBf16 : KernelClass::kMatmulStreamWideBf16, type);
  }
  if (plan.cluster.num_clusters > 0) return of_type(KernelClass::kMatmulClusterBf16, type);
  return of_type(plan.row_tiles > 0 ? KernelClass::kMatmulManyBf16 : KernelClass::kMatmulFewBf16, type);
}

}  // namespace

void KernelSequence::norm(const RowGroup& group, const DeviceNorm& norm, const Sums& delta) {
  const Activations out = context_.workspace.normed.from_row(group.first_row);
  start(KernelClass::kResidualNorm, [&](const LaunchContext& launch) {
    return residual_norm({.residual = context_.workspace.residual + int64_t{group.first_row} * context_.dims.hidden,
                          .delta = delta.first,
                          .partial_stride = delta.partial_stride,
                          .num_partials = delta.num_partials,
                          .store_residual = delta.first != nullptr,
                          .rows = nullptr,
                          .weight = norm.weight,
                          .epsilon = context_.dims.rms_norm_epsilon,
                          .scale = norm.scale,
                          .high = const_cast<__half*>(out.high),
                          .low = group.generated ? const_cast<__half*>(out.low) : nullptr,
                          .num_rows = group.num_rows,
                          .hidden = context_.dims.hidden,
                          .stride = out.stride},
                         launch);
  });
}

Input KernelSequence::norm_for(const RowGroup& group, const DeviceMatrix& reader, const DeviceNorm& norm,
                               const Sums& delta) {
  Input input{context_.workspace.normed, group.first_row, norm.scale};
  if (group.generated && delta.first == nullptr && can_normalise(reader, plan(group, reader), group.num_rows)) {
    input.norm = {.residual = context_.workspace.residual + int64_t{group.first_row} * context_.dims.hidden,
                  .weight = norm.weight,
                  .width = context_.dims.hidden,
                  .epsilon = context_.dims.rms_norm_epsilon,
                  .scale = norm.scale};
    return input;
  }
  this->norm(group, norm, delta);
  return input;
}

GeneratedPlan KernelSequence::plan(const RowGroup& group, const DeviceMatrix& matrix) const {
  return plan_generated_matmul(matrix, group.num_rows, context_.device.num_sms);
}

MatmulArgs KernelSequence::product(const RowGroup& group, const DeviceMatrix& matrix, const Input& x) const {
  const bool fp16_tiles = !group.generated || matrix.type == WeightType::kBf16;
  return {.matrix = matrix,
          .x = x.buffer.from_row(x.first_row),
          .to = {},
          .out_scale = 1.0F / x.scale / (fp16_tiles ? matrix.fp16_scale : 1.0F),
          .num_rows = group.num_rows,
          .swiglu = false,
          .norm = x.norm};
}

// Rows of sums, one behind the other, in context_.workspace.projected.
Sums KernelSequence::multiply(const RowGroup& group, const DeviceMatrix& matrix, const Input& x) {
  MatmulArgs args = product(group, matrix, x);
  args.to = {.out = context_.workspace.projected,
             .partial_stride = int64_t{group.num_rows} * matrix.rows,
             .stride = matrix.rows,
             .width = matrix.rows};
  if (group.generated) return multiply_generated(args);
  multiply_prompt(args);
  return {context_.workspace.projected, 0, 1};
}

Sums KernelSequence::add_product(const RowGroup& group, const DeviceMatrix& matrix, const Input& x) {
  if (!group.generated || leaves_partials(group, matrix)) return multiply(group, matrix, x);
  const int32_t hidden = context_.dims.hidden;
  MatmulArgs args = product(group, matrix, x);
  args.to = {.out = context_.workspace.residual + int64_t{group.first_row} * hidden,
             .stride = hidden,
             .width = hidden,
             .accumulate = true};
  multiply_generated(args);
  return {};
}

Sums KernelSequence::multiply_generated(const MatmulArgs& args) {
  const GeneratedPlan plan = plan_generated_matmul(args.matrix, args.num_rows, context_.device.num_sms);
  start(class_of(plan, args), [&](const LaunchContext& launch) { return generated_matmul(args, plan, launch); });
  return {args.to.out, args.to.partial_stride, plan.num_partials};
}

void KernelSequence::multiply_prompt(MatmulArgs args) {
  if (args.matrix.type != WeightType::kBf16) {
    const DeviceMatrix quantized = args.matrix;
    start(quantized.type == WeightType::kQ8_0 ? KernelClass::kDequantizeQ8 : KernelClass::kDequantizeAffine4,
          [&](const LaunchContext& launch) {
            return dequantize({quantized, context_.workspace.dequantized, quantized.fp16_scale}, launch);
          });
    args.matrix.type = WeightType::kBf16;
    args.matrix.tiles = context_.workspace.dequantized;
    args.matrix.scales = nullptr;
  }
  start(KernelClass::kMatmulPrompt, [&](const LaunchContext& launch) {
    return prompt_matmul(args, context_.device.has_wgmma(), context_.device.num_sms, launch);
  });
}

// From the normalised stream to the gated activation, which most products' kernels compute on their way out.
void KernelSequence::gate_and_up(const RowGroup& group, const DeviceMatrix& matrix, const Input& x) {
  const Activations out = context_.workspace.activated.from_row(group.first_row);
  MatmulArgs args = product(group, matrix, x);
  args.swiglu = true;
  args.to = {.high = const_cast<__half*>(out.high),
             .low = group.generated ? const_cast<__half*>(out.low) : nullptr,
             .stride = out.stride,
             .width = context_.dims.ffn};
  if (!group.generated) {
    multiply_prompt(args);
    return;
  }
  if (!leaves_partials(group, matrix)) {
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
                   .width = context_.dims.ffn,
                   .stride = out.stride},
                  launch);
  });
}

void KernelSequence::head_norm(const RowGroup& group, const int32_t* rows) {
  const Activations out = context_.workspace.head_normed.from_row(group.first_head);
  start(KernelClass::kResidualNorm, [&](const LaunchContext& launch) {
    return residual_norm({.residual = context_.workspace.residual,
                          .delta = nullptr,
                          .partial_stride = 0,
                          .num_partials = 0,
                          .store_residual = false,
                          .rows = rows,
                          .weight = context_.weights.output_norm.weight,
                          .epsilon = context_.dims.rms_norm_epsilon,
                          .scale = context_.weights.output_norm.scale,
                          .high = const_cast<__half*>(out.high),
                          .low = const_cast<__half*>(out.low),
                          .num_rows = group.num_heads,
                          .hidden = context_.dims.hidden,
                          .stride = out.stride},
                         launch);
  });
}

void KernelSequence::multiply_head(const RowGroup& group, const Input& x, float* logits) {
  MatmulArgs args = product(group, context_.weights.head, x);
  const int32_t vocab = context_.dims.vocab;
  const int64_t count = int64_t{group.num_rows} * vocab;
  args.to = {.out = logits, .partial_stride = count, .stride = vocab, .width = vocab};
  if (!group.generated) {
    multiply_prompt(args);
    return;
  }
  const bool partials = leaves_partials(group, args.matrix);
  if (partials) args.to.out = context_.workspace.head_partials;
  const Sums sums = multiply_generated(args);
  if (partials) {
    start(KernelClass::kSumPartials, [&](const LaunchContext& launch) {
      return sum_partials({sums.first, sums.partial_stride, sums.num_partials, logits, count}, launch);
    });
  }
}

bool KernelSequence::leaves_partials(const RowGroup& group, const DeviceMatrix& matrix) const {
  return plan(group, matrix).num_partials > 1;
}

Result<void> KernelSequence::finish() const {
  return check(error_, fmt::format("starting {}", kernel_name(failed_)));
}

bool is_possible(KernelClass kernel, const Device& device, QuantScheme scheme) {
  switch (kernel) {
    case KernelClass::kCount: return false;
    case KernelClass::kMatmulStreamBf16:
    case KernelClass::kMatmulStreamNormedBf16:
    case KernelClass::kMatmulStreamWideBf16: return device.major >= 9;
    case KernelClass::kMatmulFewBf16: return device.major < 9;
    case KernelClass::kMatmulStreamQ8:
    case KernelClass::kMatmulStreamNormedQ8:
    case KernelClass::kMatmulStreamWideQ8: return device.major >= 9 && scheme == QuantScheme::kQ8_0;
    case KernelClass::kMatmulStreamAffine4:
    case KernelClass::kMatmulStreamNormedAffine4:
    case KernelClass::kMatmulStreamWideAffine4: return device.major >= 9 && scheme == QuantScheme::kAffine4Gs32;
    case KernelClass::kMatmulFewQ8: return device.major < 9 && scheme == QuantScheme::kQ8_0;
    case KernelClass::kMatmulFewAffine4: return device.major < 9 && scheme == QuantScheme::kAffine4Gs32;
    case KernelClass::kMatmulClusterBf16: return device.has_wgmma();
    case KernelClass::kMatmulClusterQ8: return device.has_wgmma() && scheme == QuantScheme::kQ8_0;
    case KernelClass::kMatmulClusterAffine4: return device.has_wgmma() && scheme == QuantScheme::kAffine4Gs32;
    case KernelClass::kMatmulManyBf16:
    case KernelClass::kSwiglu:
    case KernelClass::kSumPartials: return !device.has_wgmma();
    case KernelClass::kMatmulManyQ8: return !device.has_wgmma() && scheme == QuantScheme::kQ8_0;
    case KernelClass::kMatmulManyAffine4: return !device.has_wgmma() && scheme == QuantScheme::kAffine4Gs32;
    case KernelClass::kDequantizeQ8: return scheme == QuantScheme::kQ8_0;
    case KernelClass::kDequantizeAffine4: return scheme == QuantScheme::kAffine4Gs32;
    default: return true;
  }
}

const char* kernel_name(KernelClass kernel) {
  constexpr std::array kNames = {"embedding",
                                 "rotary_angles",
                                 "residual_norm",
                                 "matmul_stream_bf16",
                                 "matmul_stream_q8_0",
                                 "matmul_stream_affine4_gs32",
                                 "matmul_stream_normed_bf16",
                                 "matmul_stream_normed_q8_0",
                                 "matmul_stream_normed_affine4_gs32",
                                 "matmul_stream_wide_bf16",
                                 "matmul_stream_wide_q8_0",
                                 "matmul_stream_wide_affine4_gs32",
                                 "matmul_few_bf16",
                                 "matmul_few_q8_0",
                                 "matmul_few_affine4_gs32",
                                 "matmul_cluster_bf16",
                                 "matmul_cluster_q8_0",
                                 "matmul_cluster_affine4_gs32",
                                 "matmul_many_bf16",
                                 "matmul_many_q8_0",
                                 "matmul_many_affine4_gs32",
                                 "matmul_prompt",
                                 "dequantize_q8_0",
                                 "dequantize_affine4_gs32",
                                 "query_key_value",
                                 "attention_generated",
                                 "attention_from_projection",
                                 "attention_prompt",
                                 "swiglu_partials",
                                 "sum_partials",
                                 "sample",
                                 "stateless_attention"};
  static_assert(kNames.size() == static_cast<size_t>(KernelClass::kCount));
  return kernel == KernelClass::kCount ? "nothing" : kNames[static_cast<size_t>(kernel)];
}

}  // namespace kipp::cuda
