// Blocks that their sequence gave up while a step that names them was not collected: others may have them only then.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "kv/block_pool.h"
#include "scheduler/step.h"

namespace kipp {

class Quarantine {
 public:
  explicit Quarantine(BlockPool& pool) : pool_(&pool) {}
  ~Quarantine() { release_before(std::numeric_limits<SchedulerStepId>::max()); }
  Quarantine(const Quarantine&) = delete;
  Quarantine& operator=(const Quarantine&) = delete;

  // step: the last one that names the blocks.
  void hold(SchedulerStepId step, BlockTable table);
  void hold(SchedulerStepId step, int32_t block);  // one reference
  // Gives back what no step from `oldest` on names.
  void release_before(SchedulerStepId oldest);

  // Adds the references held, block by block. counts: [pool's blocks].
  void count_references(std::vector<int32_t>& counts) const;
  bool empty() const { return tables_.empty() && blocks_.empty(); }

 private:
  struct HeldTable {
    SchedulerStepId step;
    BlockTable table;
  };
  struct HeldBlock {
    SchedulerStepId step;
    int32_t block;
  };

  BlockPool* pool_;
  std::vector<HeldTable> tables_;
  std::vector<HeldBlock> blocks_;
};

}  // namespace kipp
