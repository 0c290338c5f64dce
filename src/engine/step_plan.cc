// Greedy: each step takes as much of the first unfinished runs as it has room for.
#include "engine/step_plan.h"

#include <algorithm>

namespace kipp {
namespace {

struct Room {
  size_t tokens, head_rows, sequences;
};

// The longest next span of a run that fits; count 0 if not even one token does.
PlannedSpan next_span(const TokenRun& run, const PlannedSpan& previous, const Room& room) {
  PlannedSpan next{previous.run, previous.begin + previous.count, 0, previous.head_begin + previous.head_count, 0};
  const size_t end = std::min(run.num_tokens, next.begin + room.tokens);
  next.count = end - next.begin;
  for (size_t h = next.head_begin; h < run.head_rows.size(); ++h) {
    const auto row = static_cast<size_t>(run.head_rows[h]);
    if (row >= end) {
      break;
    }
    if (next.head_count == room.head_rows) {
      next.count = row - next.begin;  // stop before the head row that does not fit
      break;
    }
    ++next.head_count;
  }
  return next;
}

}  // namespace

std::vector<std::vector<PlannedSpan>> plan_steps(std::span<const TokenRun> runs, const Limits& limits) {
  const Room empty{static_cast<size_t>(limits.max_tokens_per_step), static_cast<size_t>(limits.max_head_rows),
                   static_cast<size_t>(limits.max_sequences)};
  std::vector<std::vector<PlannedSpan>> steps;
  Room room{0, 0, 0};
  for (size_t r = 0; r < runs.size(); ++r) {
    PlannedSpan span{r, 0, 0, 0, 0};
    while (span.begin + span.count < runs[r].num_tokens) {
      PlannedSpan next = next_span(runs[r], span, room);
      if (room.sequences == 0 || next.count == 0) {
        steps.emplace_back();
        room = empty;
        continue;
      }
      steps.back().push_back(next);
      room = {room.tokens - next.count, room.head_rows - next.head_count, room.sequences - 1};
      span = next;
      if (span.begin + span.count < runs[r].num_tokens) {
        room = {0, 0, 0};  // the rest needs this span's K and V: it belongs to a later step
      }
    }
  }
  return steps;
}

}  // namespace kipp
