// Two lists, short ones: what was given up in the last two steps.
#include "scheduler/quarantine.h"

#include <utility>

namespace kipp {

void Quarantine::hold(SchedulerStepId step, BlockTable table) {
  tables_.push_back({step, std::move(table)});
}

void Quarantine::hold(SchedulerStepId step, int32_t block) {
  blocks_.push_back({step, block});
}

void Quarantine::release_before(SchedulerStepId oldest) {
  std::erase_if(tables_, [oldest](const HeldTable& held) { return held.step < oldest; });
  std::erase_if(blocks_, [this, oldest](const HeldBlock& held) {
    const bool is_over = held.step < oldest;
    if (is_over) {
      pool_->release(held.block);
    }
    return is_over;
  });
}

void Quarantine::count_references(std::vector<int32_t>& counts) const {
  for (const HeldTable& held : tables_) {
    for (const int32_t block : held.table.blocks()) {
      ++counts[static_cast<size_t>(block)];
    }
  }
  for (const HeldBlock& held : blocks_) {
    ++counts[static_cast<size_t>(held.block)];
  }
}

}  // namespace kipp
