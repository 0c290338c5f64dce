// The forward pass once more, as for a prompt that arrives whole: token t is at position t, K and V are plain arrays.
#include "backend/host/stateless.h"

#include <algorithm>
#include <numeric>

#include "backend/host/workspace.h"
#include "base/bf16.h"

namespace kipp::host {
namespace {

constexpr int32_t kHeadTile = 32;  // rows whose logits are computed together: 19 MiB

struct Prompt {
  const Dimensions& dims;
  std::span<const int32_t> tokens;
  bool round_kv;
  Workspace& w;
  Operators& ops;

  int32_t length() const { return static_cast<int32_t>(tokens.size()); }
  std::span<const float> rows(const AlignedBuffer<float>& buffer, int32_t width) const {
    return buffer.span().first(tokens.size() * static_cast<size_t>(width));
  }
};

void norm(const Prompt& prompt, const float* x, const uint16_t* weight, float* out, int32_t rows, int32_t columns) {
  prompt.ops.rms_norm({.x = x,
                       .weight = weight,
                       .out = out,
                       .rows = rows,
                       .columns = columns,
                       .x_stride = columns,
                       .out_stride = columns,
                       .epsilon = prompt.dims.rms_norm_epsilon});
}

void rotate(const Prompt& prompt, float* heads, int32_t num_heads) {
  prompt.ops.rope({.x = heads,
                   .positions = prompt.w.positions.data(),
                   .num_tokens = prompt.length(),
                   .num_heads = num_heads,
                   .head_dim = prompt.dims.head_dim,
                   .theta = prompt.dims.rope_theta});
}

void matmul(const Prompt& prompt, const Matrix& weight, const float* x, float* out, int32_t num_rows) {
  const Product product{&weight, out};
  prompt.ops.matmul({&product, 1}, x, num_rows);
}

void attention_block(const Prompt& prompt, const Layer& layer) {
  Workspace& w = prompt.w;
  const Dimensions& dims = prompt.dims;
  const int32_t length = prompt.length();
  norm(prompt, w.residual.data(), layer.attention_norm, w.normed.data(), length, dims.hidden);
  matmul(prompt, layer.query_projection, w.normed.data(), w.query.data(), length);
  matmul(prompt, layer.key_projection, w.normed.data(), w.key.data(), length);
  matmul(prompt, layer.value_projection, w.normed.data(), w.value.data(), length);
  norm(prompt, w.query.data(), layer.query_norm, w.query.data(), length * dims.num_query_heads, dims.head_dim);
  norm(prompt, w.key.data(), layer.key_norm, w.key.data(), length * dims.num_kv_heads, dims.head_dim);
  rotate(prompt, w.query.data(), dims.num_query_heads);
  rotate(prompt, w.key.data(), dims.num_kv_heads);
  if (prompt.round_kv) {
    const ptrdiff_t count = ptrdiff_t{length} * dims.kv_width();
    std::transform(w.key.data(), w.key.data() + count, w.key.data(), round_to_bf16);
    std::transform(w.value.data(), w.value.data() + count, w.value.data(), round_to_bf16);
  }
  prompt.ops.stateless_attention({.q = w.query.data(),
                                  .k = w.key.data(),
                                  .v = w.value.data(),
                                  .type = prompt.round_kv ? KvType::kBf16 : KvType::kF32,
                                  .out = w.attended.data(),
                                  .num_tokens = length,
                                  .num_query_heads = dims.num_query_heads,
                                  .num_kv_heads = dims.num_kv_heads,
                                  .head_dim = dims.head_dim});
  matmul(prompt, layer.output_projection, w.attended.data(), w.delta.data(), length);
  prompt.ops.residual_add({w.residual.data(), w.delta.data(), int64_t{length} * dims.hidden});
}

void ffn_block(const Prompt& prompt, const Layer& layer) {
  Workspace& w = prompt.w;
  const int32_t length = prompt.length();
  norm(prompt, w.residual.data(), layer.ffn_norm, w.normed.data(), length, prompt.dims.hidden);
  matmul(prompt, layer.gate_projection, w.normed.data(), w.gate.data(), length);
  matmul(prompt, layer.up_projection, w.normed.data(), w.up.data(), length);
  prompt.ops.swiglu({w.gate.data(), w.up.data(), w.gate.data(), int64_t{length} * prompt.dims.ffn});
  matmul(prompt, layer.down_projection, w.gate.data(), w.delta.data(), length);
  prompt.ops.residual_add({w.residual.data(), w.delta.data(), int64_t{length} * prompt.dims.hidden});
}

void show_logits(const Prompt& prompt, const HostModel& model, const StatelessObserver& observer) {
  const auto vocab = static_cast<size_t>(prompt.dims.vocab);
  for (int32_t row = 0; row < prompt.length(); row += kHeadTile) {
    const int32_t count = std::min(kHeadTile, prompt.length() - row);
    const float* hidden = prompt.w.normed.data() + ptrdiff_t{row} * prompt.dims.hidden;
    matmul(prompt, model.output_head, hidden, prompt.w.logits.data(), count);
    for (int32_t r = 0; r < count; ++r) {
      observer.on_logits(row + r, prompt.w.logits.span().subspan(static_cast<size_t>(r) * vocab, vocab));
    }
  }
}

}  // namespace

Result<void> evaluate_stateless(const HostModel& model, std::span<const int32_t> tokens, bool round_kv, Operators& ops,
                                const StatelessObserver& observer) {
  const Dimensions& dims = model.dimensions;
  const auto length = static_cast<int32_t>(tokens.size());
  const int32_t head_rows = observer.on_logits ? std::min(length, kHeadTile) : 0;
  KIPP_ASSIGN(Workspace workspace, Workspace::create(dims, length, head_rows));
  const Prompt prompt{dims, tokens, round_kv, workspace, ops};
  const auto show_residual = [&](int32_t layer) {
    if (observer.on_residual) {
      observer.on_residual(layer, prompt.rows(workspace.residual, dims.hidden));
    }
  };

  std::iota(workspace.positions.data(), workspace.positions.data() + length, 0);
  ops.begin_step({workspace.positions.data(), tokens.size()}, dims);
  ops.embedding({model.token_embedding, tokens.data(), workspace.residual.data(), length, dims.hidden});
  show_residual(-1);
  for (int32_t l = 0; l < dims.num_layers; ++l) {
    attention_block(prompt, model.layers[static_cast<size_t>(l)]);
    ffn_block(prompt, model.layers[static_cast<size_t>(l)]);
    show_residual(l);
  }
  norm(prompt, workspace.residual.data(), model.output_norm, workspace.normed.data(), length, dims.hidden);
  if (observer.on_final_hidden) {
    observer.on_final_hidden(prompt.rows(workspace.normed, dims.hidden));
  }
  if (observer.on_logits) {
    show_logits(prompt, model, observer);
  }
  return {};
}

}  // namespace kipp::host
