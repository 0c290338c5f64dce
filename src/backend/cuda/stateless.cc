// The forward pass once more, as for a prompt that arrives whole: row t is at position t, K and V are plain arrays.
#include "backend/cuda/stateless.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "backend/cuda/kernels/embedding.h"
#include "backend/cuda/kernels/query_key_value.h"
#include "backend/cuda/kernels/stateless_attention.h"
#include "backend/cuda/scales.h"

namespace kipp::cuda {
namespace {

// Arrays of this pass alone.
struct Arrays {
  DeviceMemory memory;
  int32_t *ids, *source, *positions;
  float *k, *v, *scores;
};

void take(Arrays& arrays, Arena& arena, const Dimensions& dims, size_t length) {
  arrays.ids = arena.take<int32_t>(length);
  arrays.source = arena.take<int32_t>(length);
  arrays.positions = arena.take<int32_t>(length);
  arrays.k = arena.take<float>(length * static_cast<size_t>(dims.kv_width()));
  arrays.v = arena.take<float>(length * static_cast<size_t>(dims.kv_width()));
  arrays.scores = arena.take<float>(length * length * static_cast<size_t>(dims.num_query_heads));
}

// Copies are in the order of the pass's stream: one from pageable memory may still be on its way when it returns, and
// the stream does not wait for the default one.
Result<Arrays> make_arrays(const PassContext& context, std::span<const int32_t> tokens) {
  Arrays arrays{};
  Arena counting;
  take(arrays, counting, context.dims, tokens.size());
  KIPP_ASSIGN(arrays.memory, allocate_device(counting.used(), "a stateless pass"));
  Arena arena(arrays.memory.data());
  take(arrays, arena, context.dims, tokens.size());
  std::vector<int32_t> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), 0);
  const std::vector<int32_t> source(tokens.size(), -1);
  const auto upload = [&](int32_t* to, std::span<const int32_t> from) {
    return check(cudaMemcpyAsync(to, from.data(), from.size_bytes(), cudaMemcpyHostToDevice, context.stream),
                 "a stateless pass");
  };
  KIPP_TRY(upload(arrays.ids, tokens));
  KIPP_TRY(upload(arrays.source, source));
  KIPP_TRY(upload(arrays.positions, positions));
  KIPP_CUDA_TRY(cudaStreamSynchronize(context.stream), "a stateless pass");
  return arrays;
}

class StatelessPass {
 public:
  StatelessPass(const PassContext& context, const Arrays& arrays, int32_t length, const StatelessObserver& observer,
                KernelCounts& counts)
      : c_(context),
        w_(context.workspace),
        arrays_(arrays),
        length_(length),
        all_{0, length, 0, 0, false},
        observer_(observer),
        kernels_(context, counts) {}

  Result<void> run();

 private:
  Result<void> show_residual(int32_t layer);
  Result<void> show_final_hidden();
  Result<void> show_logits();
  Result<void> read(const float* from, size_t count, std::vector<float>& to);
  void layer(const DeviceLayer& layer);

  const PassContext& c_;
  Workspace& w_;
  const Arrays& arrays_;
  int32_t length_;
  RowGroup all_;
  const StatelessObserver& observer_;
  KernelSequence kernels_;
};

Result<void> StatelessPass::run() {
  kernels_.start(KernelClass::kEmbedding, [&](const LaunchContext& launch) {
    return embedding({c_.weights.embedding, arrays_.ids, arrays_.source, nullptr, w_.residual, length_, c_.dims.hidden},
                     launch);
  });
  kernels_.start(KernelClass::kRotaryAngles, [&](const LaunchContext& launch) {
    return rotary_angles({arrays_.positions, c_.frequencies, w_.angles, length_}, launch);
  });
  KIPP_TRY(show_residual(-1));
  for (int32_t l = 0; l < c_.dims.num_layers; ++l) {
    layer(c_.weights.layers[static_cast<size_t>(l)]);
    const Sums delta{w_.projected, 0, 1};
    kernels_.norm(all_, c_.weights.output_norm, delta);  // takes the layer's output in; the norm counts after the last
    KIPP_TRY(show_residual(l));
  }
  KIPP_TRY(show_final_hidden());
  KIPP_TRY(show_logits());
  return kernels_.finish();
}

void StatelessPass::layer(const DeviceLayer& layer) {
  kernels_.norm(all_, layer.attention_norm, {});
  const Sums projected = kernels_.multiply(all_, layer.query_key_value, {w_.normed, 0, layer.attention_norm.scale});
  kernels_.start(KernelClass::kStatelessAttention, [&](const LaunchContext& launch) {
    return split_heads({.heads = {.sums = projected.first,
                                  .partial_stride = projected.partial_stride,
                                  .num_partials = projected.num_partials,
                                  .width = layer.query_key_value.rows,
                                  .query_norm = layer.query_norm,
                                  .key_norm = layer.key_norm,
                                  .epsilon = c_.dims.rms_norm_epsilon,
                                  .angles = w_.angles},
                        .q = w_.q,
                        .k = arrays_.k,
                        .v = arrays_.v,
                        .num_rows = length_,
                        .num_query_heads = c_.dims.num_query_heads},
                       launch);
  });
  kernels_.start(KernelClass::kStatelessAttention, [&](const LaunchContext& launch) {
    return stateless_attention({.q = w_.q,
                                .k = arrays_.k,
                                .v = arrays_.v,
                                .scores = arrays_.scores,
                                .high = w_.attended.high,
                                .low = w_.attended.low,
                                .num_rows = length_,
                                .num_query_heads = c_.dims.num_query_heads,
                                .stride = w_.attended.stride},
                               launch);
  });
  const Sums attended = kernels_.multiply(all_, layer.output, {w_.attended, 0, kAttentionScale});
  kernels_.norm(all_, layer.ffn_norm, attended);
  kernels_.gate_and_up(all_, layer.gate_up, {w_.normed, 0, layer.ffn_norm.scale});
  kernels_.multiply(all_, layer.down, {w_.activated, 0, kSwigluScale});
}

Result<void> StatelessPass::read(const float* from, size_t count, std::vector<float>& to) {
  KIPP_TRY(kernels_.finish());
  to.resize(count);
  KIPP_CUDA_TRY(cudaMemcpyAsync(to.data(), from, count * sizeof(float), cudaMemcpyDeviceToHost, c_.stream),
                "reading a stateless pass");
  return check(cudaStreamSynchronize(c_.stream), "a stateless pass");
}

Result<void> StatelessPass::show_residual(int32_t layer) {
  if (!observer_.on_residual) return {};
  std::vector<float> residual;
  KIPP_TRY(read(w_.residual, static_cast<size_t>(length_) * static_cast<size_t>(c_.dims.hidden), residual));
  observer_.on_residual(layer, residual);
  return {};
}

// As the head reads it: rounded to FP16.
Result<void> StatelessPass::show_final_hidden() {
  if (!observer_.on_final_hidden) return {};
  const auto stride = static_cast<size_t>(w_.normed.stride);
  std::vector<__half> terms(static_cast<size_t>(length_) * stride);
  KIPP_TRY(kernels_.finish());
  KIPP_CUDA_TRY(
      cudaMemcpyAsync(terms.data(), w_.normed.high, terms.size() * sizeof(__half), cudaMemcpyDeviceToHost, c_.stream),
      "reading a stateless pass");
  KIPP_CUDA_TRY(cudaStreamSynchronize(c_.stream), "a stateless pass");
  std::vector<float> hidden;
  for (size_t row = 0; row < static_cast<size_t>(length_); ++row) {
    for (size_t c = 0; c < static_cast<size_t>(c_.dims.hidden); ++c) {
      hidden.push_back(__half2float(terms[row * stride + c]) / c_.weights.output_norm.scale);
    }
  }
  observer_.on_final_hidden(hidden);
  return {};
}

Result<void> StatelessPass::show_logits() {
  if (!observer_.on_logits) return {};
  const auto vocab = static_cast<size_t>(c_.dims.vocab);
  std::vector<float> logits;
  for (int32_t row = 0; row < length_; row += kMaxHeadGroup) {
    RowGroup part = all_;
    part.num_rows = std::min(kMaxHeadGroup, length_ - row);
    kernels_.multiply_head(part, {w_.normed, row, c_.weights.output_norm.scale}, w_.logits);
    KIPP_TRY(read(w_.logits, static_cast<size_t>(part.num_rows) * vocab, logits));
    for (int32_t r = 0; r < part.num_rows; ++r) {
      observer_.on_logits(row + r, std::span(logits).subspan(static_cast<size_t>(r) * vocab, vocab));
    }
  }
  return {};
}

}  // namespace

Result<void> evaluate_stateless(const PassContext& context, QuantScheme scheme, std::span<const int32_t> tokens,
                                const StatelessObserver& observer, KernelCounts& counts) {
  const auto length = static_cast<int32_t>(tokens.size());
  const Limits limits{.max_tokens_per_step = length,
                      .max_sequences = 1,
                      .max_head_rows = std::min(length, kMaxHeadGroup),
                      .context = length};
  KIPP_ASSIGN(Workspace workspace, make_workspace(context.dims, scheme, limits, context.device));
  const PassContext own{context.dims,        context.device,  context.weights,
                        workspace,           context.kv_pool, context.kv_layer_stride,
                        context.frequencies, context.sampled, context.stream};
  KIPP_ASSIGN(const Arrays arrays, make_arrays(own, tokens));
  KIPP_TRY(StatelessPass(own, arrays, length, observer, counts).run());
  return check(cudaStreamSynchronize(context.stream), "a stateless pass");
}

}  // namespace kipp::cuda
