// The attention of all spans of a step as one job. Spans differ in length by thousands of times, so that tasks are cut
// by what they cost: several short items together, or one long item by its segments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/cpu/kernels.h"
#include "backend/host/operators.h"
#include "base/aligned_buffer.h"
#include "base/thread_pool.h"

namespace kipp::cpu {

class AttentionTasks {
 public:
  AttentionTasks(const Kernels& kernels, ThreadPool& threads) : kernels_(kernels), threads_(threads) {}

  void run(std::span<const AttentionArgs> spans);
  void run_stateless(const host::StatelessAttentionArgs& args);

 private:
  struct SpanWork;

  void run_all(std::vector<SpanWork>& works);
  int64_t cut(std::vector<SpanWork>& works);
  void run_task(const SpanWork& work, int64_t index, float* scratch);
  void run_segment(const SpanWork& work, int64_t index);
  void run_items(const SpanWork& work, int64_t begin, int64_t end, float* scratch) const;

  const Kernels& kernels_;
  ThreadPool& threads_;
  std::vector<const std::byte*> keys_, values_;  // blocks of all spans
  // Of items that several tasks share.
  AlignedBuffer<float> partials_;
  std::vector<int32_t> open_segments_;  // of each item: segments that no task has ended
};

}  // namespace kipp::cpu
