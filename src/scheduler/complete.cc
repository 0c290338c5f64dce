// What a step's results change: tokens, blocks that become findable, sequences that end.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "scheduler/scheduler.h"

namespace kipp {
namespace {

tl::unexpected<Error> invalid(std::string message) {
  return make_error(ErrorCode::kInvalidArgument, std::move(message));
}

}  // namespace

Result<std::vector<NewToken>> Scheduler::complete(SchedulerStepId id, std::span<const int32_t> sampled) {
  if (in_flight_.empty() || in_flight_.front().id != id) {
    return invalid(fmt::format("completing step {}: the oldest in flight is {}", id,
                               in_flight_.empty() ? "none" : fmt::format("{}", in_flight_.front().id)));
  }
  if (sampled.size() != in_flight_.front().rows.size()) {
    return invalid(fmt::format("completing step {}: expected {} sampled ids, found {}", id,
                               in_flight_.front().rows.size(), sampled.size()));
  }
  const InFlight step = std::move(in_flight_.front());
  in_flight_.pop_front();
  std::set<uint64_t> touched;
  for (const InFlightSpan& span : step.spans) {
    collect(*span.sequence, span.end);
    touched.insert(span.sequence->request->id);
  }
  std::vector<NewToken> tokens;
  for (size_t row = 0; row < step.rows.size(); ++row) {
    if (step.rows[row].is_sampled) {
      if (auto token = append(*step.rows[row].sequence, sampled[row])) {
        token->row = static_cast<int32_t>(row);
        tokens.push_back(*token);
      }
    }
  }
  quarantine_.release_before(oldest_in_flight());
  for (const uint64_t request : touched) {
    retire_if_over(request);
  }
  return tokens;
}

// The rows of a span are in its blocks. Those that a sequence gave up in the meantime are nobody's.
void Scheduler::collect(Sequence& sequence, int32_t end) {
  --sequence.num_in_flight;
  if (sequence.wants_prompt_logits()) {
    sequence.num_logit_rows = std::max(sequence.num_logit_rows, std::min(end, sequence.num_prompt_tokens()));
  }
  if (sequence.state == Sequence::State::kRunning) {
    sequence.num_collected = end;
    sequence.request->prompt_done |= end >= sequence.num_prompt_tokens();
    index_blocks(sequence);
  }
}

// Also to a sequence that was preempted meanwhile. Nothing: it ended before.
std::optional<NewToken> Scheduler::append(Sequence& sequence, int32_t token) {
  --sequence.num_pending;
  if (sequence.state == Sequence::State::kEnded) {
    ++totals_.num_dropped_tokens;
    return std::nullopt;
  }
  NewToken added{.sequence = sequence.id(),
                 .row = 0,
                 .token = token,
                 .index = sequence.num_known() - sequence.num_prompt_tokens(),
                 .ended = {}};
  if (token < 0) {
    added.ended = EndReason::kFailed;
  } else {
    sequence.tokens.push_back(token);
    if (RequestTimes& times = sequence.request->times; !times.first_token) {
      times.first_token = options_.clock();
    }
    if (sequence.num_known() == sequence.max_tokens()) {
      added.ended = EndReason::kLength;
    }
  }
  if (added.ended) {
    end(sequence, *added.ended);
  }
  return added;
}

Result<void> Scheduler::fail(SchedulerStepId id) {
  const auto found = std::ranges::find(in_flight_, id, &InFlight::id);
  if (found == in_flight_.end()) {
    return invalid(fmt::format("failing step {}: it is not in flight", id));
  }
  const InFlight step = std::move(*found);
  in_flight_.erase(found);
  drains_ = true;
  std::set<uint64_t> touched;
  for (const InFlightSpan& span : step.spans) {
    --span.sequence->num_in_flight;
    touched.insert(span.sequence->request->id);
    if (span.sequence->state != Sequence::State::kEnded) {
      end(*span.sequence, EndReason::kFailed);
    }
  }
  quarantine_.release_before(oldest_in_flight());
  for (const uint64_t request : touched) {
    retire_if_over(request);
  }
  return {};
}

}  // namespace kipp
