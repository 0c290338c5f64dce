// Cuts the next step: every sequence that decodes gets a row, prompts what is left of the budget.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "scheduler/scheduler.h"

namespace kipp {

std::optional<ScheduledStep> Scheduler::next_step() {
  const size_t max_in_flight = options_.look_ahead ? 2 : 1;
  if (in_flight_.size() >= max_in_flight || (drains_ && !in_flight_.empty())) {
    return std::nullopt;
  }
  drains_ = false;
  admit();
  const auto num_decoding = std::ranges::count_if(running_, [](const Sequence* s) { return s->is_decoding(); });
  // One token at least is for a prompt, so that it does not wait for the end of those that came later.
  Room room{.tokens = options_.max_tokens_per_step,
            .prefill_tokens = std::max(1, options_.max_tokens_per_step - static_cast<int32_t>(num_decoding)),
            .head_rows = options_.max_head_rows};
  ScheduledStep step{.id = next_id_};
  InFlight record{.id = next_id_, .spans = {}, .rows = {}};
  // In the order in which they are served; a sequence may preempt others, which are behind it.
  for (size_t i = 0; i < running_.size(); ++i) {
    plan(*running_[i], room, step, record);
  }
  if (step.spans.empty()) {
    KIPP_CHECK(step.copy_from.empty());
    return std::nullopt;
  }
  ++next_id_;
  ++totals_.num_steps;
  in_flight_.push_back(std::move(record));
  return step;
}

void Scheduler::plan(Sequence& sequence, Room& room, ScheduledStep& step, InFlight& record) {
  const bool is_decoding = sequence.is_decoding();
  if (sequence.rows_left() == 0 || chunk(sequence, room) == 0) {
    return;
  }
  if (!is_decoding) {
    if (room.head_rows == 0 && (sequence.leader != nullptr || sequence.seeks_leader)) {
      return;  // behind its leader's rows there may be one only, and that one draws
    }
    if (waits_for_leader(sequence, step)) {
      return;
    }
    if (sequence.num_computed == sequence.num_indexed * kBlockPositions &&
        sequence.num_indexed == sequence.table.size()) {
      share_prefix(sequence, find_prefix(sequence));
    }
  }
  int32_t count = chunk(sequence, room);
  const int32_t missing = blocks_for(sequence.num_computed + count) - sequence.table.size();
  if (missing > 0 && !ensure_free(sequence, missing)) {
    const int32_t reach = (sequence.table.size() + pool_->num_free()) * kBlockPositions;
    count = std::min(count, reach - sequence.num_computed);
  }
  if (count == 0) {
    return;
  }
  KIPP_CHECK(sequence.table.grow(sequence.num_computed + count).has_value());
  room.tokens -= count;
  room.prefill_tokens -= is_decoding ? 0 : count;
  const size_t num_rows = step.head_rows.size();
  emit(sequence, count, step, record);
  room.head_rows -= static_cast<int32_t>(step.head_rows.size() - num_rows);
}

// As many rows, all of one class, as the step has room for: the last one may need a head row, or every one of them.
int32_t Scheduler::chunk(const Sequence& sequence, const Room& room) const {
  const int32_t rows_left = sequence.rows_left();
  int32_t count = std::min(rows_left, room.tokens);
  if (!sequence.is_decoding()) {
    count = std::min(count, room.prefill_tokens);
  }
  if (sequence.num_computed < sequence.num_prompt_tokens()) {
    count = std::min(count, sequence.num_prompt_tokens() - sequence.num_computed);
  }
  if (sequence.wants_prompt_logits()) {
    const int32_t first_head = std::max(sequence.num_computed, sequence.num_logit_rows);
    return std::min(count, first_head + room.head_rows - sequence.num_computed);
  }
  return count == rows_left && room.head_rows == 0 ? count - 1 : count;
}

void Scheduler::emit(Sequence& sequence, int32_t count, ScheduledStep& step, InFlight& record) {
  const int32_t begin = sequence.num_computed;
  const int32_t end = begin + count;
  const auto blocks = sequence.table.blocks().first(static_cast<size_t>(blocks_for(end)));
  step.spans.push_back({.sequence = sequence.id(),
                        .slot = sequence.slot,
                        .first_position = begin,
                        .num_tokens = count,
                        .generated = begin >= sequence.num_prompt_tokens(),
                        .block_table = {blocks.begin(), blocks.end()}});
  for (int32_t position = begin; position < end; ++position) {
    const bool is_sampled = position + 1 == sequence.num_tokens();
    const bool is_known = position < sequence.num_known();
    if (is_sampled || (sequence.wants_prompt_logits() && position >= sequence.num_logit_rows)) {
      step.head_rows.push_back(static_cast<int32_t>(step.tokens.size()));
      step.rows.push_back({.sequence = sequence.id(), .position = position + 1, .is_sampled = is_sampled});
      record.rows.push_back({&sequence, is_sampled});
    }
    step.tokens.push_back({.token = is_known ? sequence.tokens[static_cast<size_t>(position)] : 0,
                           .from_row = is_known ? -1 : sequence.pending_row});
  }
  if (end == sequence.num_tokens()) {
    sequence.pending_row = static_cast<int32_t>(step.rows.size()) - 1;
    ++sequence.num_pending;
  }
  record.spans.push_back({&sequence, end});
  sequence.num_computed = end;
  sequence.last_step = step.id;
  ++sequence.num_in_flight;
  if (RequestTimes& times = sequence.request->times; !times.first_scheduled) {
    times.first_scheduled = options_.clock();
  }
  totals_.num_scheduled_tokens += static_cast<uint64_t>(count);
  ++totals_.num_scheduled_spans;
  totals_.num_recomputed_tokens += static_cast<uint64_t>(std::clamp(sequence.num_once_computed - begin, 0, count));
}

}  // namespace kipp
