// See workspace.h. Buffers are laid out twice: to count, and to take.
#include "backend/cuda/workspace.h"

#include <algorithm>
#include <bit>

#include "backend/cuda/kernels/attention_generated.h"
#include "backend/cuda/kernels/tensor_map.h"
#include "backend/cuda/kernels/weight_tiles.h"
#include "kv/block_pool.h"

namespace kipp::cuda {
namespace {

constexpr int32_t kRounding = 64;  // rows that a kernel may read beyond those of a group

TermBuffer take_terms(Arena& arena, int64_t rows, int32_t columns) {
  TermBuffer buffer;
  buffer.stride = static_cast<int32_t>(padded(columns, kPaddedColumns));
  const auto elements = static_cast<size_t>((rows + kRounding) * buffer.stride);
  buffer.high = arena.take<__half>(elements);
  buffer.low = arena.take<__half>(elements);
  return buffer;
}

// Prompt rows leave one sum of each product but gate and up, whose activation is fused; generated rows several of each.
int64_t projected_elements(const Dimensions& dims, const Limits& limits) {
  const int64_t qkv = dims.query_width() + 2 * dims.kv_width();
  const int64_t generated = std::min(limits.max_tokens_per_step, kMaxGeneratedGroup);
  return std::max(limits.max_tokens_per_step * std::max<int64_t>(qkv, dims.hidden),
                  kNumSlices * generated * std::max(qkv, int64_t{2} * dims.ffn));
}

int64_t largest_matrix_tiles(const Dimensions& dims) {
  return std::max({num_tiles(dims.query_width() + 2 * dims.kv_width(), dims.hidden),
                   num_tiles(dims.hidden, dims.query_width()), num_tiles(2 * dims.ffn, dims.hidden),
                   num_tiles(dims.hidden, dims.ffn)});
}

// What steps round a context up to (StepShape::max_blocks).
int32_t round_up_context(int32_t context) {
  return static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(blocks_for(context)))) * kBlockPositions;
}

void take(Workspace& w, Arena& arena, const Dimensions& dims, QuantScheme scheme, const Limits& limits) {
  const int64_t rows = limits.max_tokens_per_step;
  const int64_t heads = limits.max_head_rows;
  const auto count = [](int64_t elements) { return static_cast<size_t>(elements); };
  w.residual = arena.take<float>(count(rows * dims.hidden));
  w.angles = arena.take<float2>(count(rows * dims.head_dim / 2));
  w.normed = take_terms(arena, rows, dims.hidden);
  w.projected = arena.take<float>(count(projected_elements(dims, limits)));
  w.q = arena.take<float>(count(rows * dims.query_width()));
  w.attended = take_terms(arena, rows, dims.query_width());
  w.activated = take_terms(arena, rows, dims.ffn);
  w.head_normed = take_terms(arena, heads, dims.hidden);
  w.logits = arena.take<float>(count(heads * dims.vocab));
  w.head_partials = arena.take<float>(count(kNumSlices * std::min<int64_t>(heads, kMaxHeadGroup) * dims.vocab));
  if (scheme != QuantScheme::kBf16) {
    w.dequantized = arena.take<std::byte>(count(largest_matrix_tiles(dims) * kFp16TileBytes));
  }
  w.attention_rows = std::min(limits.max_tokens_per_step, kMaxGeneratedGroup);
  w.attention = arena.take<std::byte>(
      attention_generated_workspace_bytes(w.attention_rows, dims.num_query_heads, round_up_context(limits.context)));
}

}  // namespace

size_t workspace_bytes(const Dimensions& dimensions, QuantScheme scheme, const Limits& limits) {
  Workspace workspace;
  Arena arena;
  take(workspace, arena, dimensions, scheme, limits);
  return arena.used();
}

Result<Workspace> make_workspace(const Dimensions& dimensions, QuantScheme scheme, const Limits& limits,
                                 const Device& device) {
  Workspace workspace;
  KIPP_ASSIGN(workspace.memory, allocate_device(workspace_bytes(dimensions, scheme, limits), "the workspace"));
  Arena arena(workspace.memory.data());
  take(workspace, arena, dimensions, scheme, limits);
  if (device.has_wgmma() && !has_tensor_maps()) {
    return make_error(ErrorCode::kUnsupported, "cuda: the driver makes no tensor maps: it is older than CUDA 12");
  }
  return workspace;
}

}  // namespace kipp::cuda
