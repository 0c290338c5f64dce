// What is computed once for several: prefixes that are indexed, prompts that another sequence is about to compute, the
// prompt of a request's choices.
#include <algorithm>

#include "base/check.h"
#include "scheduler/scheduler.h"

namespace kipp {

// At least one token is left to compute, for its logits. Whoever wants the logits of all rows shares nothing.
std::vector<int32_t> Scheduler::find_prefix(const Sequence& sequence) const {
  if (!index_ || sequence.wants_prompt_logits()) {
    return {};
  }
  return index_->find(sequence.chain(), sequence.table.blocks(), (sequence.num_known() - 1) / kBlockPositions);
}

void Scheduler::share_prefix(Sequence& sequence, std::span<const int32_t> found) {
  for (const int32_t block : found) {
    sequence.table.share(block);
  }
  sequence.num_indexed += static_cast<int32_t>(found.size());
  sequence.num_computed = std::max(sequence.num_computed, sequence.num_indexed * kBlockPositions);
  sequence.num_collected = std::max(sequence.num_collected, sequence.num_indexed * kBlockPositions);
  if (sequence.choice == 0 && sequence.num_preemptions == 0) {
    const auto num_tokens = static_cast<int32_t>(found.size()) * kBlockPositions;
    sequence.request->num_cached_tokens += num_tokens;
    totals_.num_prefix_hit_tokens += static_cast<uint64_t>(num_tokens);
  }
}

// How many of the sequence's first rows the leader computes too, if they are more than it would follow another for.
// Choices of a request share single rows, by copying the block that is not full; others whole blocks.
int32_t Scheduler::common_rows(const Sequence& leader, const Sequence& sequence) const {
  const bool same_request = leader.request == sequence.request;
  if (!same_request && (!index_ || leader.request->salt != sequence.request->salt)) {
    return 0;
  }
  int32_t limit = std::min(leader.num_known(), sequence.num_known() - 1);
  if (leader.num_prompt_tokens() != sequence.num_prompt_tokens()) {  // behind the shorter prompt, row classes differ
    limit = std::min({limit, leader.num_prompt_tokens(), sequence.num_prompt_tokens()});
  }
  if (!same_request) {
    limit = limit / kBlockPositions * kBlockPositions;
  }
  if (limit <= sequence.lead_tokens) {
    return 0;
  }
  // The next token or block decides for most, without a look at all that is equal.
  const int32_t needed =
      same_request ? sequence.lead_tokens + 1 : (sequence.lead_tokens / kBlockPositions + 1) * kBlockPositions;
  if (!std::equal(sequence.tokens.begin() + sequence.lead_tokens, sequence.tokens.begin() + needed,
                  leader.tokens.begin() + sequence.lead_tokens)) {
    return 0;
  }
  const auto end = sequence.tokens.begin() + limit;
  const auto common = static_cast<int32_t>(std::mismatch(sequence.tokens.begin(), end, leader.tokens.begin()).first -
                                           sequence.tokens.begin());
  const int32_t whole = common / kBlockPositions * kBlockPositions;
  if (!same_request) {
    return whole;
  }
  // When the first choice is gone, the others do not queue up behind each other for less than a block.
  return sequence.request->prompt_done && leader.num_collected < common ? whole : common;
}

// The running sequence, served earlier, that computes most of what this one needs beyond the blocks it shares already.
void Scheduler::choose_leader(Sequence& sequence, int32_t num_shared_blocks) {
  sequence.seeks_leader = false;
  sequence.leader = nullptr;
  sequence.lead_tokens = num_shared_blocks * kBlockPositions;
  if (sequence.wants_prompt_logits()) {
    return;
  }
  for (Sequence* other : running_) {
    if (!ServedBefore()(other, &sequence)) {
      return;
    }
    if (const int32_t common = common_rows(*other, sequence); common > sequence.lead_tokens) {
      sequence.leader = other;
      sequence.lead_tokens = common;
    }
  }
}

// Rows that the leader has yet to compute, or whose step is not collected, are waited for: never longer than it runs.
bool Scheduler::waits_for_leader(Sequence& sequence, ScheduledStep& step) {
  if (sequence.seeks_leader) {
    choose_leader(sequence, sequence.table.size());
  }
  if (sequence.leader == nullptr) {
    return false;
  }
  Sequence& leader = *sequence.leader;
  if (leader.num_collected < sequence.lead_tokens) {
    return true;
  }
  if (leader.request == sequence.request && !fork(sequence, leader, step)) {
    return true;
  }
  sequence.leader = nullptr;
  return false;
}

// Takes the leader's whole blocks, and a copy of the one that both will write to. False: there is no block for the
// copy.
bool Scheduler::fork(Sequence& sequence, Sequence& leader, ScheduledStep& step) {
  const int32_t num_whole = sequence.lead_tokens / kBlockPositions;
  KIPP_CHECK(!index_ || leader.num_indexed >= num_whole);
  for (int32_t i = sequence.table.size(); i < num_whole; ++i) {
    sequence.table.share(leader.table.blocks()[static_cast<size_t>(i)]);
  }
  sequence.num_computed = num_whole * kBlockPositions;
  sequence.num_collected = num_whole * kBlockPositions;
  sequence.num_indexed = index_ ? num_whole : 0;
  if (sequence.lead_tokens % kBlockPositions == 0) {
    return true;
  }
  if (!ensure_free(sequence, 1)) {
    return false;
  }
  KIPP_CHECK(sequence.table.grow(sequence.lead_tokens).has_value());
  step.copy_from.push_back(leader.table.blocks()[static_cast<size_t>(num_whole)]);
  step.copy_to.push_back(sequence.table.blocks().back());
  leader.last_step = step.id;
  sequence.num_computed = sequence.lead_tokens;
  return true;
}

// Blocks whose last step was collected become findable, while their sequence goes on. A block that holds what another
// in the index does gives way to it.
void Scheduler::index_blocks(Sequence& sequence) {
  if (!index_) {
    return;
  }
  for (; sequence.num_indexed < sequence.num_collected / kBlockPositions; ++sequence.num_indexed) {
    const auto index = static_cast<size_t>(sequence.num_indexed);
    const int32_t block = sequence.table.blocks()[index];
    const int32_t indexed = index_->insert(sequence.chain(), sequence.table.blocks().first(index), block);
    if (indexed == block) {
      continue;
    }
    sequence.table.exchange(sequence.num_indexed, indexed);
    if (sequence.last_step >= oldest_in_flight()) {
      quarantine_.hold(sequence.last_step, block);
    } else {
      pool_->release(block);
    }
  }
}

}  // namespace kipp
