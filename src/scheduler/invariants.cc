// What must hold between any two calls.
#include <fmt/format.h>

#include <algorithm>

#include "scheduler/scheduler.h"

namespace kipp {
namespace {

tl::unexpected<Error> broken(const std::string& what) {
  return make_error(ErrorCode::kInternal, "scheduler: " + what);
}

Result<void> check_sequence(const Sequence& s, bool has_index) {
  const std::string name = fmt::format("request {}, choice {}: ", s.request->id, s.choice);
  const bool is_running = s.state == Sequence::State::kRunning;
  if (is_running != (s.slot >= 0) || (!is_running && (s.table.size() != 0 || s.num_computed != 0))) {
    return broken(name + "holds blocks or a slot, and does not run");
  }
  if (s.num_collected > s.num_computed || s.num_computed > s.num_tokens() || s.num_pending < 0 || s.num_in_flight < 0 ||
      s.num_in_flight > 2 || s.num_known() > s.max_tokens()) {
    return broken(name + fmt::format("{} positions collected, {} computed, {} tokens, {} pending", s.num_collected,
                                     s.num_computed, s.num_known(), s.num_pending));
  }
  if (blocks_for(s.num_computed) > s.table.size()) {
    return broken(name + fmt::format("{} positions in {} blocks", s.num_computed, s.table.size()));
  }
  if (s.num_indexed != (has_index ? s.num_collected / kBlockPositions : 0)) {
    return broken(name + fmt::format("{} blocks indexed of {} positions", s.num_indexed, s.num_collected));
  }
  if (s.end_reason.has_value() != (s.state == Sequence::State::kEnded)) {
    return broken(name + "an end without a reason, or the other way round");
  }
  if (s.leader != nullptr && (s.leader->state != Sequence::State::kRunning || !ServedBefore()(s.leader, &s))) {
    return broken(name + "follows a sequence that does not run before it");
  }
  return {};
}

}  // namespace

Result<void> Scheduler::check_invariants() const {
  size_t num_waiting = 0;
  size_t num_running = 0;
  for (const auto& [id, request] : requests_) {
    for (const Sequence& sequence : request->sequences) {
      KIPP_TRY(check_sequence(sequence, index_.has_value()));
      num_waiting += sequence.state == Sequence::State::kWaiting ? 1U : 0U;
      num_running += sequence.state == Sequence::State::kRunning ? 1U : 0U;
    }
  }
  if (num_waiting != waiting_.size() || num_running != running_.size() ||
      num_running + free_slots_.size() != static_cast<size_t>(options_.max_sequences)) {
    return broken(fmt::format("{} wait, {} of them queued; {} run, {} of them in order, {} slots free", num_waiting,
                              waiting_.size(), num_running, running_.size(), free_slots_.size()));
  }
  if (!std::ranges::is_sorted(running_, ServedBefore())) {
    return broken("what runs is out of order");
  }
  if (in_flight_.empty() && !quarantine_.empty()) {
    return broken("blocks wait for steps that are over");
  }
  std::vector<int32_t> slots = free_slots_;
  std::vector<int32_t> counts(static_cast<size_t>(pool_->num_blocks()), 0);
  quarantine_.count_references(counts);
  for (const Sequence* sequence : running_) {
    slots.push_back(sequence->slot);
    for (const int32_t block : sequence->table.blocks()) {
      ++counts[static_cast<size_t>(block)];
    }
  }
  std::ranges::sort(slots);
  if (std::ranges::adjacent_find(slots) != slots.end()) {
    return broken("a slot belongs to two sequences");
  }
  int32_t num_used = 0;
  for (int32_t block = 0; block < pool_->num_blocks(); ++block) {
    num_used += pool_->references(block) > 0 ? 1 : 0;
    // A pool that had holders before the scheduler: theirs are in no table.
    if (counts[static_cast<size_t>(block)] > pool_->references(block) ||
        (capacity_ == pool_->num_blocks() && counts[static_cast<size_t>(block)] != pool_->references(block))) {
      return broken(fmt::format("block {} has {} references, {} tables hold it", block, pool_->references(block),
                                counts[static_cast<size_t>(block)]));
    }
  }
  if (num_used + pool_->num_free() != pool_->num_blocks()) {
    return broken(fmt::format("{} blocks used, {} free of {}", num_used, pool_->num_free(), pool_->num_blocks()));
  }
  return index_ ? index_->check_invariants() : Result<void>{};
}

}  // namespace kipp
