// See poison.h. Blocks are in the canonical form of KvBlock.
#include "gates/poison.h"

#include <algorithm>
#include <span>

#include "backend/backend.h"
#include "base/block_positions.h"
#include "model/dimensions.h"

namespace kipp::gates {
namespace {

constexpr uint16_t kBf16Nan = 0x7FC0;

// [layer][k|v][kv_head][32][head_dim]
void poison_positions_from(int32_t first, KvBlock& block) {
  constexpr size_t kHead = size_t{kBlockPositions} * kHeadDim;
  for (size_t head = 0; head < block.values.size(); head += kHead) {
    const std::span<uint16_t> rows = std::span(block.values).subspan(head, kHead);
    std::ranges::fill(rows.subspan(static_cast<size_t>(first) * kHeadDim), kBf16Nan);
  }
}

}  // namespace

Result<void> poison_unused(Model& model, int32_t num_blocks, const Session& session) {
  Backend& backend = model.backend();
  const std::span<const int32_t> held = session.block_table();
  KvBlock block;
  if (const int32_t used = session.length() % kBlockPositions; used != 0) {
    KIPP_TRY(backend.read_block(held.back(), block));
    poison_positions_from(used, block);
    KIPP_TRY(backend.write_block(held.back(), block));
  }
  KIPP_TRY(backend.read_block(0, block));  // for its size
  poison_positions_from(0, block);
  for (int32_t id = 0; id < num_blocks; ++id) {
    if (std::ranges::find(held, id) == held.end()) {
      KIPP_TRY(backend.write_block(id, block));
    }
  }
  return {};
}

}  // namespace kipp::gates
