// One list of sizes serves the plan and the allocation.
#include "backend/host/workspace.h"

#include <array>
#include <utility>

namespace kipp::host {
namespace {

using Field = std::pair<AlignedBuffer<float> Workspace::*, size_t>;

std::array<Field, 12> float_fields(const Dimensions& d, size_t num_tokens, size_t num_head_rows) {
  const auto width = [](int32_t value) { return static_cast<size_t>(value); };
  return {{
      {&Workspace::residual, num_tokens * width(d.hidden)},
      {&Workspace::normed, num_tokens * width(d.hidden)},
      {&Workspace::query, num_tokens * width(d.query_width())},
      {&Workspace::key, num_tokens * width(d.kv_width())},
      {&Workspace::value, num_tokens * width(d.kv_width())},
      {&Workspace::attended, num_tokens * width(d.query_width())},
      {&Workspace::delta, num_tokens * width(d.hidden)},
      {&Workspace::gate, num_tokens * width(d.ffn)},
      {&Workspace::up, num_tokens * width(d.ffn)},
      {&Workspace::head_residual, num_head_rows * width(d.hidden)},
      {&Workspace::head_normed, num_head_rows * width(d.hidden)},
      {&Workspace::logits, num_head_rows * width(d.vocab)},
  }};
}

}  // namespace

Result<Workspace> Workspace::create(const Dimensions& dimensions, int32_t num_tokens, int32_t num_head_rows) {
  constexpr std::string_view kWhat = "workspace";
  const auto tokens = static_cast<size_t>(num_tokens);
  Workspace workspace;
  KIPP_ASSIGN(workspace.ids, AlignedBuffer<int32_t>::create(tokens, kWhat));
  KIPP_ASSIGN(workspace.positions, AlignedBuffer<int32_t>::create(tokens, kWhat));
  for (const auto& [field, size] : float_fields(dimensions, tokens, static_cast<size_t>(num_head_rows))) {
    KIPP_ASSIGN(workspace.*field, AlignedBuffer<float>::create(size, kWhat));
  }
  return workspace;
}

size_t Workspace::bytes(const Dimensions& dimensions, int32_t num_tokens, int32_t num_head_rows) {
  const auto tokens = static_cast<size_t>(num_tokens);
  size_t bytes = 2 * tokens * sizeof(int32_t);
  for (const auto& [field, size] : float_fields(dimensions, tokens, static_cast<size_t>(num_head_rows))) {
    bytes += size * sizeof(float);
  }
  return bytes;
}

}  // namespace kipp::host
