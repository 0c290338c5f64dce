// Who runs: admission by the blocks that are needed, and preemption when there are too few.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "scheduler/scheduler.h"

namespace kipp {

// Strictly in order: nobody is admitted past a sequence that has to wait, so all that run go before all that wait with
// the same priority.
void Scheduler::admit() {
  while (!waiting_.empty()) {
    Sequence& next = **waiting_.begin();
    const bool has_slot = !free_slots_.empty() || !running_below(next.request->priority).empty();
    if (!has_slot || next.num_in_flight > 0) {  // preempted: its newest token is not known yet
      return;
    }
    const std::vector<int32_t> found = find_prefix(next);
    choose_leader(next, static_cast<int32_t>(found.size()));
    if (!make_room(next, found)) {
      next.leader = nullptr;
      return;
    }
    start(next, found);
  }
}

// A slot, and blocks for what the sequence has and its next token: if they are not free, then those of sequences with
// lower priority, but only if that is enough. found: indexed blocks that it begins with.
bool Scheduler::make_room(const Sequence& sequence, std::span<const int32_t> found) {
  for (;;) {
    const int32_t num_short = blocks_short(sequence, found);
    if (!free_slots_.empty()) {
      if (num_short <= 0) {
        return true;
      }
      if (num_short <= num_reclaimable({}, found)) {
        return false;  // they come when the steps in flight are collected
      }
    }
    const auto victims = running_below(sequence.request->priority);
    int32_t num_gained = num_reclaimable(victims, found);
    for (const Sequence* victim : victims) {
      num_gained += blocks_outstanding(*victim);
    }
    if (victims.empty() || num_gained < num_short) {
      return false;
    }
    preempt(*victims.back());
  }
}

// What would be missing, after everybody that runs has got the blocks for the tokens it has and its next one.
int32_t Scheduler::blocks_short(const Sequence& sequence, std::span<const int32_t> found) const {
  int32_t needed = blocks_outstanding(sequence);
  if (sequence.leader == nullptr) {
    needed -= static_cast<int32_t>(found.size());
  }
  for (const int32_t block : found) {
    needed += pool_->references(block) == 0 ? 1 : 0;  // counted among the free ones, until it is taken up
  }
  for (const Sequence* running : running_) {
    needed += blocks_outstanding(*running);
  }
  return needed - pool_->num_free();
}

// Blocks that a sequence has yet to allocate: not those that its leader is to share. A leader's are more than the
// found.
int32_t Scheduler::blocks_outstanding(const Sequence& sequence) const {
  const int32_t shared = sequence.leader == nullptr ? 0 : sequence.lead_tokens / kBlockPositions;
  return std::max(0, sequence.num_blocks_wanted() - std::max(sequence.table.size(), shared));
}

std::span<Sequence* const> Scheduler::running_below(int32_t priority) const {
  const auto first = std::ranges::find_if(running_, [=](const Sequence* s) { return s->request->priority > priority; });
  return {first, running_.end()};
}

// Free blocks that there will be beside those there are: held by nobody but the victims and the quarantine.
int32_t Scheduler::num_reclaimable(std::span<Sequence* const> victims, std::span<const int32_t> except) const {
  if (victims.empty() && quarantine_.empty()) {
    return 0;
  }
  std::vector<int32_t> counts(static_cast<size_t>(pool_->num_blocks()), 0);
  quarantine_.count_references(counts);
  for (const Sequence* victim : victims) {
    for (const int32_t block : victim->table.blocks()) {
      ++counts[static_cast<size_t>(block)];
    }
  }
  for (const int32_t block : except) {
    counts[static_cast<size_t>(block)] = 0;
  }
  int32_t num_blocks = 0;
  for (int32_t block = 0; block < pool_->num_blocks(); ++block) {
    const int32_t count = counts[static_cast<size_t>(block)];
    num_blocks += count > 0 && count == pool_->references(block) ? 1 : 0;
  }
  return num_blocks;
}

void Scheduler::start(Sequence& sequence, std::span<const int32_t> found) {
  waiting_.erase(&sequence);
  running_.insert(std::ranges::upper_bound(running_, &sequence, ServedBefore()), &sequence);
  sequence.state = Sequence::State::kRunning;
  sequence.slot = free_slots_.back();
  free_slots_.pop_back();
  if (sequence.choice == 0 && sequence.num_preemptions == 0 && index_) {
    totals_.num_prefix_query_tokens += static_cast<uint64_t>(sequence.num_prompt_tokens());
  }
  share_prefix(sequence, found);
}

// Back to the queue, to be computed again from the tokens it has: those of the prompt as prompt rows, the others as
// generated ones. What it wrote stays findable until the blocks are needed.
void Scheduler::preempt(Sequence& sequence) {
  leave_running(sequence);
  sequence.state = Sequence::State::kWaiting;
  waiting_.insert(&sequence);
  ++sequence.num_preemptions;
  ++sequence.request->num_preemptions;
  ++totals_.num_preemptions;
}

void Scheduler::leave_running(Sequence& sequence) {
  const auto found = std::ranges::find(running_, &sequence);
  KIPP_CHECK(found != running_.end());
  running_.erase(found);
  for (Sequence* follower : running_) {
    if (follower->leader == &sequence) {
      follower->leader = nullptr;
      follower->seeks_leader = true;
    }
  }
  if (sequence.last_step >= oldest_in_flight()) {
    quarantine_.hold(sequence.last_step, std::move(sequence.table));
  }
  sequence.table = BlockTable(*pool_);
  free_slots_.push_back(std::exchange(sequence.slot, -1));
  sequence.num_once_computed = std::max(sequence.num_once_computed, sequence.num_computed);
  sequence.num_computed = 0;
  sequence.num_collected = 0;
  sequence.num_indexed = 0;
  sequence.leader = nullptr;
  sequence.seeks_leader = false;
}

// Free blocks for a running sequence, if need be those of the ones after it. False: it has to wait for a step in
// flight, or, being the last, for the end of another.
bool Scheduler::ensure_free(const Sequence& sequence, int32_t num_blocks) {
  while (pool_->num_free() < num_blocks) {
    if (pool_->num_free() + num_reclaimable({}, {}) >= num_blocks || running_.back() == &sequence) {
      return false;
    }
    preempt(*running_.back());
  }
  return true;
}

}  // namespace kipp
