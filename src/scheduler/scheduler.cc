// Requests from add() to take_ended().
#include "scheduler/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace kipp {
namespace {

tl::unexpected<Error> unknown(SequenceId id) {
  return make_error(ErrorCode::kNotFound,
                    fmt::format("request {}, choice {}: unknown, or ended", id.request, id.choice));
}

}  // namespace

Result<std::unique_ptr<Scheduler>> Scheduler::create(BlockPool& pool, SchedulerOptions options) {
  const std::pair<const char*, int32_t> limits[] = {{"max_tokens_per_step", options.max_tokens_per_step},
                                                    {"max_sequences", options.max_sequences},
                                                    {"max_head_rows", options.max_head_rows},
                                                    {"context", options.context}};
  for (const auto& [name, value] : limits) {
    if (value < 1) {
      return make_error(ErrorCode::kInvalidArgument,
                        fmt::format("scheduler: {}: expected at least 1, found {}", name, value));
    }
  }
  return std::unique_ptr<Scheduler>(new Scheduler(pool, std::move(options)));
}

Scheduler::Scheduler(BlockPool& pool, SchedulerOptions options)
    : pool_(&pool), options_(std::move(options)), capacity_(pool.num_free()), quarantine_(pool) {
  if (options_.prefix_cache) {
    index_.emplace(pool, options_.name_space, options_.block_hash);
  }
  for (int32_t slot = options_.max_sequences - 1; slot >= 0; --slot) {
    free_slots_.push_back(slot);
  }
}

Scheduler::~Scheduler() = default;

Result<void> Scheduler::add(SchedulerRequest request) {
  KIPP_TRY(check_request(request));
  auto state =
      std::make_unique<RequestState>(RequestState{.id = request.id,
                                                  .arrival = next_arrival_++,
                                                  .priority = request.priority,
                                                  .num_prompt_tokens = static_cast<int32_t>(request.prompt_ids.size()),
                                                  .max_new_tokens = request.max_new_tokens,
                                                  .prompt_logits = request.prompt_logits,
                                                  .salt = std::move(request.cache_salt)});
  state->times.queued = options_.clock();
  state->sequences.reserve(static_cast<size_t>(request.num_choices));
  for (int32_t choice = 0; choice < request.num_choices; ++choice) {
    state->sequences.emplace_back(*state, choice, request.prompt_ids, *pool_);
    waiting_.insert(&state->sequences.back());
  }
  requests_.emplace(request.id, std::move(state));
  return {};
}

Result<void> Scheduler::check_request(const SchedulerRequest& request) {
  const auto invalid = [this](std::string message) {
    return refuse(RefusalReason::kInvalid, ErrorCode::kInvalidArgument, std::move(message));
  };
  if (request.prompt_ids.empty()) {
    return invalid("the prompt is empty: there is nothing to predict from");
  }
  if (request.max_new_tokens < 1 || request.num_choices < 1) {
    return invalid(fmt::format("expected at least one new token and one choice, found {} and {}",
                               request.max_new_tokens, request.num_choices));
  }
  if (requests_.contains(request.id)) {
    return invalid(fmt::format("request {} is known already", request.id));
  }
  const auto num_prompt = static_cast<int64_t>(request.prompt_ids.size());
  const int64_t num_tokens = num_prompt + request.max_new_tokens;
  if (num_tokens > options_.context) {
    return refuse(RefusalReason::kContext, ErrorCode::kCapacity,
                  fmt::format("a prompt of {} tokens and {} new ones exceed the context of {} by {}", num_prompt,
                              request.max_new_tokens, options_.context, num_tokens - options_.context));
  }
  const int32_t num_blocks = blocks_for(static_cast<int32_t>(num_tokens - 1));  // the last token is never evaluated
  if (num_blocks > capacity_) {
    return refuse(
        RefusalReason::kPool, ErrorCode::kCapacity,
        fmt::format("a prompt of {} tokens and {} new ones need {} KV blocks of {} positions, the pool has {}",
                    num_prompt, request.max_new_tokens, num_blocks, kBlockPositions, capacity_));
  }
  return {};
}

tl::unexpected<Error> Scheduler::refuse(RefusalReason reason, ErrorCode code, std::string message) {
  ++totals_.num_refused[static_cast<size_t>(reason)];
  return make_error(code, std::move(message));
}

Sequence* Scheduler::find_sequence(SequenceId id) const {
  const auto found = requests_.find(id.request);
  if (found == requests_.end() || id.choice < 0 || static_cast<size_t>(id.choice) >= found->second->sequences.size()) {
    return nullptr;
  }
  return &found->second->sequences[static_cast<size_t>(id.choice)];
}

Result<void> Scheduler::finish(SequenceId id, EndReason reason) {
  Sequence* sequence = find_sequence(id);
  if (sequence == nullptr || sequence->state == Sequence::State::kEnded) {
    return unknown(id);
  }
  end(*sequence, reason);
  retire_if_over(id.request);
  return {};
}

Result<void> Scheduler::cancel(uint64_t request) {
  const auto found = requests_.find(request);
  if (found == requests_.end()) {
    return unknown({request, 0});
  }
  for (Sequence& sequence : found->second->sequences) {
    if (sequence.state != Sequence::State::kEnded) {
      end(sequence, EndReason::kCancelled);
    }
  }
  retire_if_over(request);
  return {};
}

void Scheduler::end(Sequence& sequence, EndReason reason) {
  KIPP_CHECK(sequence.state != Sequence::State::kEnded);
  if (sequence.state == Sequence::State::kRunning) {
    leave_running(sequence);
  } else {
    waiting_.erase(&sequence);
  }
  sequence.state = Sequence::State::kEnded;
  sequence.end_reason = reason;
  ++totals_.num_ended[static_cast<size_t>(reason)];
  RequestState& request = *sequence.request;
  if (std::ranges::all_of(request.sequences, [](const Sequence& s) { return s.end_reason.has_value(); })) {
    request.times.ended = options_.clock();
  }
}

// A request is over when all its sequences have ended and no step in flight points at one.
void Scheduler::retire_if_over(uint64_t request) {
  const auto found = requests_.find(request);
  if (found == requests_.end()) {
    return;
  }
  const auto is_over = [](const Sequence& s) { return s.state == Sequence::State::kEnded && s.num_in_flight == 0; };
  if (std::ranges::all_of(found->second->sequences, is_over)) {
    ended_.push_back(describe(*found->second));
    requests_.erase(found);
  }
}

RequestInfo Scheduler::describe(const RequestState& request) const {
  RequestInfo info{.id = request.id,
                   .num_prompt_tokens = request.num_prompt_tokens,
                   .num_cached_tokens = request.num_cached_tokens,
                   .num_preemptions = request.num_preemptions,
                   .times = request.times,
                   .num_new_tokens = {},
                   .reasons = {}};
  for (const Sequence& sequence : request.sequences) {
    info.num_new_tokens.push_back(sequence.num_known() - request.num_prompt_tokens);
    info.reasons.push_back(sequence.end_reason);
  }
  return info;
}

std::vector<RequestInfo> Scheduler::take_ended() {
  return std::exchange(ended_, {});
}

std::optional<RequestInfo> Scheduler::info(uint64_t request) const {
  const auto found = requests_.find(request);
  return found == requests_.end() ? std::nullopt : std::optional(describe(*found->second));
}

std::span<const int32_t> Scheduler::tokens(SequenceId id) const {
  const Sequence* sequence = find_sequence(id);
  return sequence == nullptr ? std::span<const int32_t>() : sequence->tokens;
}

SchedulerStats Scheduler::stats() const {
  SchedulerStats stats = totals_;
  stats.num_waiting = static_cast<int32_t>(waiting_.size());
  stats.num_running = static_cast<int32_t>(running_.size());
  stats.num_blocks_used = pool_->num_blocks() - pool_->num_free();
  stats.num_blocks_cached = pool_->num_cached();
  stats.num_blocks_free = pool_->num_free() - pool_->num_cached();
  return stats;
}

}  // namespace kipp
