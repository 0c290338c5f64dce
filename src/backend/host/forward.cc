// Qwen3's forward pass, top to bottom: embedding, per layer attention and feed-forward blocks around a residual stream,
// final norm, output head. Shapes of the buffers: backend/host/workspace.h.
#include "backend/host/forward.h"

#include <algorithm>
#include <vector>

#include "base/seeded_fault.h"

namespace kipp::host {
namespace {

// What attention does for each span; from layer to layer only `kv` changes.
struct PagedSpans {
  std::vector<KvWriteArgs> writes;
  std::vector<AttentionArgs> attentions;
};

// All steps of one forward pass share these.
struct Pass {
  const Dimensions& dims;
  const StepInput& input;
  KvStorage& kv;
  Workspace& w;
  Operators& ops;
};

void fill_positions(const Pass& pass) {
  int32_t* position = pass.w.positions.data();
  for (const Span& span : pass.input.spans) {
    int32_t first_position = span.first_position;
    if (seeded(Fault::kRopeOffByOne)) ++first_position;
    if (seeded(Fault::kRopeChunkRelative)) first_position = 0;
    for (int32_t t = 0; t < span.num_tokens; ++t) {
      *position++ = first_position + t;
    }
  }
}

void matmul(const Pass& pass, const Matrix& weight, const float* x, float* out, int32_t num_rows) {
  const Product product{&weight, out};
  pass.ops.matmul({&product, 1}, x, num_rows);
}

// Norm over the hidden width of every row.
void hidden_norm(const Pass& pass, const float* x, const uint16_t* weight, float* out, int32_t rows) {
  const int32_t hidden = pass.dims.hidden;
  pass.ops.rms_norm({.x = x,
                     .weight = weight,
                     .out = out,
                     .rows = rows,
                     .columns = hidden,
                     .x_stride = hidden,
                     .out_stride = hidden,
                     .epsilon = pass.dims.rms_norm_epsilon});
}

// Norm and rotation of each head, in place.
void norm_and_rotate(const Pass& pass, float* heads, const uint16_t* weight, int32_t num_heads) {
  const int32_t head_dim = pass.dims.head_dim;
  pass.ops.rms_norm({.x = heads,
                     .weight = weight,
                     .out = heads,
                     .rows = pass.input.num_tokens * num_heads,
                     .columns = head_dim,
                     .x_stride = head_dim,
                     .out_stride = head_dim,
                     .epsilon = pass.dims.rms_norm_epsilon});
  pass.ops.rope({.x = heads,
                 .positions = pass.w.positions.data(),
                 .num_tokens = pass.input.num_tokens,
                 .num_heads = num_heads,
                 .head_dim = head_dim,
                 .theta = pass.dims.rope_theta});
}

PagedSpans paged_spans(const Pass& pass) {
  const Dimensions& dims = pass.dims;
  PagedSpans spans;
  ptrdiff_t row = 0;  // of the span's first token
  for (const Span& span : pass.input.spans) {
    spans.writes.push_back({.k = pass.w.key.data() + row * dims.kv_width(),
                            .v = pass.w.value.data() + row * dims.kv_width(),
                            .kv = {},
                            .block_table = span.block_table.data(),
                            .first_position = span.first_position,
                            .num_tokens = span.num_tokens,
                            .num_kv_heads = dims.num_kv_heads,
                            .head_dim = dims.head_dim});
    spans.attentions.push_back({.q = pass.w.query.data() + row * dims.query_width(),
                                .kv = {},
                                .block_table = span.block_table.data(),
                                .out = pass.w.attended.data() + row * dims.query_width(),
                                .first_position = span.first_position,
                                .num_tokens = span.num_tokens,
                                .num_query_heads = dims.num_query_heads,
                                .num_kv_heads = dims.num_kv_heads,
                                .head_dim = dims.head_dim});
    row += span.num_tokens;
  }
  return spans;
}

// Every span attends to its own sequence, whose new K and V go into the pool first.
void paged_attention(const Pass& pass, PagedSpans& spans, const KvLayerView& kv) {
  for (KvWriteArgs& write : spans.writes) {
    write.kv = kv;
  }
  for (AttentionArgs& attention : spans.attentions) {
    attention.kv = kv;
  }
  pass.ops.kv_write(spans.writes);
  pass.ops.attention(spans.attentions);
}

void attention_block(const Pass& pass, PagedSpans& spans, const Layer& layer, const KvLayerView& kv) {
  const int32_t num_tokens = pass.input.num_tokens;
  Workspace& w = pass.w;
  hidden_norm(pass, w.residual.data(), layer.attention_norm, w.normed.data(), num_tokens);
  const Product projections[] = {{&layer.query_projection, w.query.data()},
                                 {&layer.key_projection, w.key.data()},
                                 {&layer.value_projection, w.value.data()}};
  pass.ops.matmul(projections, w.normed.data(), num_tokens);
  norm_and_rotate(pass, w.query.data(), layer.query_norm, pass.dims.num_query_heads);
  const uint16_t* key_norm = seeded(Fault::kKeyNormSwapped) ? layer.query_norm : layer.key_norm;
  norm_and_rotate(pass, w.key.data(), key_norm, pass.dims.num_kv_heads);
  paged_attention(pass, spans, kv);
  matmul(pass, layer.output_projection, w.attended.data(), w.delta.data(), num_tokens);
  pass.ops.residual_add({w.residual.data(), w.delta.data(), int64_t{num_tokens} * pass.dims.hidden});
}

void ffn_block(const Pass& pass, const Layer& layer) {
  const int32_t num_tokens = pass.input.num_tokens;
  Workspace& w = pass.w;
  hidden_norm(pass, w.residual.data(), layer.ffn_norm, w.normed.data(), num_tokens);
  const Product projections[] = {{&layer.gate_projection, w.gate.data()}, {&layer.up_projection, w.up.data()}};
  pass.ops.matmul(projections, w.normed.data(), num_tokens);
  pass.ops.swiglu({w.gate.data(), w.up.data(), w.gate.data(), int64_t{num_tokens} * pass.dims.ffn});
  matmul(pass, layer.down_projection, w.gate.data(), w.delta.data(), num_tokens);
  pass.ops.residual_add({w.residual.data(), w.delta.data(), int64_t{num_tokens} * pass.dims.hidden});
}

// Only rows that need logits pay for the head, a tenth to a third of a small model's weights.
void output_head(const Pass& pass, const HostModel& model) {
  const int32_t hidden = pass.dims.hidden;
  float* gathered = pass.w.head_residual.data();
  for (const int32_t row : pass.input.head_rows) {
    gathered = std::copy_n(pass.w.residual.data() + ptrdiff_t{row} * hidden, hidden, gathered);
  }
  const auto num_rows = static_cast<int32_t>(pass.input.head_rows.size());
  hidden_norm(pass, pass.w.head_residual.data(), model.output_norm, pass.w.head_normed.data(), num_rows);
  matmul(pass, model.output_head, pass.w.head_normed.data(), pass.w.logits.data(), num_rows);
}

}  // namespace

void forward(const HostModel& model, const StepInput& input, KvStorage& kv, Workspace& workspace, Operators& ops) {
  const Pass pass{model.dimensions, input, kv, workspace, ops};
  fill_positions(pass);
  PagedSpans spans = paged_spans(pass);
  ops.begin_step({workspace.positions.data(), static_cast<size_t>(input.num_tokens)}, model.dimensions);
  ops.embedding({.table = model.token_embedding,
                 .ids = workspace.ids.data(),
                 .out = workspace.residual.data(),
                 .num_tokens = input.num_tokens,
                 .hidden = model.dimensions.hidden});
  for (int32_t l = 0; l < model.dimensions.num_layers; ++l) {
    const Layer& layer = model.layers[static_cast<size_t>(l)];
    attention_block(pass, spans, layer, kv.layer(l));
    ffn_block(pass, layer);
  }
  if (!input.head_rows.empty()) {
    output_head(pass, model);
  }
}

}  // namespace kipp::host
