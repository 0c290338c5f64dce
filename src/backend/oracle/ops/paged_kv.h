// Addresses inside one layer of a paged KV pool.
#pragma once

#include "base/seeded_fault.h"
#include "model/operators.h"

namespace kipp::oracle {

enum class KvPart : int32_t { kKey = 0, kValue = 1 };

// The vector [head_dim] of one part, position and KV head.
template <typename Element>
Element* kv_vector(const KvLayerView& kv, const int32_t* block_table, int32_t position, KvPart part, int32_t kv_head,
                   int32_t num_kv_heads, int32_t head_dim) {
  int32_t block_idx = position / kBlockPositions;
  if (seeded(Fault::kBlockRollover) && position % kBlockPositions == 0 && position > 0) --block_idx;
  auto* layer_block = reinterpret_cast<Element*>(kv.blocks + block_table[block_idx] * kv.block_stride_bytes);
  const ptrdiff_t head = ptrdiff_t{static_cast<int32_t>(part)} * num_kv_heads + kv_head;
  return layer_block + (head * kBlockPositions + position % kBlockPositions) * head_dim;
}

}  // namespace kipp::oracle
