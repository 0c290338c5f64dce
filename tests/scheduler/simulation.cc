// The promises: what a sequence gets is what it gets alone; whoever is first in order is in every step; nobody starts
// before an earlier one; budgets hold; nothing is lost.
#include "scheduler/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

namespace kipp::simulation {
namespace {

SchedulerOptions with_clock(SchedulerOptions options, int64_t* now) {
  options.clock = [now] { return SchedulerTime(std::chrono::nanoseconds(++*now)); };
  return options;
}

}  // namespace

Simulation::Simulation(const SimulationOptions& options, Choose choose)
    : options_(options),
      choose_(std::move(choose)),
      pool_(options.num_blocks, options.placement_seed),
      scheduler_(*Scheduler::create(pool_, with_clock(options.scheduler, &now_))),
      device_(options.num_blocks, options.scheduler) {}

void Simulation::broke(std::string what) {
  if (error_.empty()) {
    error_ = std::move(what);
  }
}

void Simulation::operate() {
  switch (choose_(8)) {
    case 0: add(); break;
    case 1:
      if (choose_(4) == 0) cancel();
      break;
    case 2:
      if (options_.with_failures && choose_(16) == 0) fail_step();
      break;
    case 3:
    case 4: collect(); break;
    default: step();
  }
  check();
}

// A beginning that others have too, and an end of its own or none.
std::vector<int32_t> Simulation::make_prompt() {
  const auto longest = static_cast<uint32_t>(std::min(options_.scheduler.context - 1, 5 * kBlockPositions));
  std::vector<int32_t> prompt;
  if (!texts_.empty() && choose_(8) != 0) {
    const auto& text = texts_[choose_(static_cast<uint32_t>(texts_.size()))];
    const size_t all = std::min<size_t>(text.size(), longest);
    const size_t length = choose_(2) == 0 ? all : choose_(static_cast<uint32_t>(all) + 1);
    prompt.assign(text.begin(), text.begin() + static_cast<ptrdiff_t>(length));
  }
  const uint32_t room = longest - static_cast<uint32_t>(prompt.size());
  uint32_t num_own = choose_(3) == 0 ? 0 : choose_(room + 1);
  if (prompt.empty() && num_own == 0) {
    num_own = 1;
  }
  const auto kind = static_cast<int32_t>(choose_(3));
  for (uint32_t i = 0; i < num_own; ++i) {
    prompt.push_back(kind * 7 + static_cast<int32_t>(i % 5));
  }
  return prompt;
}

void Simulation::add() {
  User user;
  SchedulerRequest& request = user.request;
  request.id = next_request_++;
  request.prompt_ids = make_prompt();
  request.max_new_tokens = 1 + static_cast<int32_t>(choose_(choose_(4) == 0 ? 90 : 12));
  request.num_choices = choose_(4) == 0 ? 1 + static_cast<int32_t>(choose_(4)) : 1;
  request.priority = static_cast<int32_t>(choose_(static_cast<uint32_t>(options_.num_priorities)));
  request.cache_salt = choose_(4) == 0 ? "salt" : "";
  request.prompt_logits = choose_(8) == 0;
  user.arrival = request.id;
  user.stop_every = choose_(2) == 0 ? 0 : 1 + static_cast<int32_t>(choose_(20));
  const auto num_tokens = static_cast<int32_t>(request.prompt_ids.size()) + request.max_new_tokens;
  const bool fits = num_tokens <= options_.scheduler.context && blocks_for(num_tokens - 1) <= options_.num_blocks;
  const auto added = scheduler_->add(request);
  if (added.has_value() != fits) {
    return broke(fmt::format("request {} of {} tokens was {}", request.id, num_tokens, fits ? "refused" : "admitted"));
  }
  if (!fits) {
    return;
  }
  // Few seeds, so that equal prompts often have equal answers, which come back in prompts.
  const uint64_t seed = choose_(2);
  device_.learn(request.id, seed);
  for (int32_t choice = 0; choice < request.num_choices; ++choice) {
    Stream stream;
    stream.expected = alone(request, {seed, choice}, user.stop_every);
    user.streams.push_back(std::move(stream));
  }
  if (texts_.size() < 12) {
    texts_.push_back(request.prompt_ids);
    texts_.back().insert(texts_.back().end(), user.streams[0].expected.begin(), user.streams[0].expected.end());
  }
  users_.emplace(request.id, std::move(user));
}

void Simulation::cancel() {
  if (users_.empty()) {
    return;
  }
  auto found = users_.begin();
  std::advance(found, choose_(static_cast<uint32_t>(users_.size())));
  if (!scheduler_->cancel(found->first)) {
    broke(fmt::format("request {} cannot be cancelled", found->first));
  }
  for (Stream& stream : found->second.streams) {
    stream.is_whole = stream.is_whole && stream.is_ended;
    stream.is_ended = true;
  }
}

void Simulation::step() {
  const bool may_be_nothing = device_.num_in_flight() > 0;
  const auto step = scheduler_->next_step();
  if (!step) {
    const bool is_idle = std::ranges::all_of(users_, [](const auto& item) {
      return std::ranges::all_of(item.second.streams, [](const Stream& s) { return s.is_ended; });
    });
    if (!may_be_nothing && !is_idle) {
      broke("nothing to do, though somebody waits and no step is in flight");
    }
    return;
  }
  check_progress(*step);
  check_start_order(*step);
  check_logit_rows(*step);
  if (std::string error = device_.forward(*step); !error.empty()) {
    broke(fmt::format("step {}: {}", step->id, error));
  }
}

// The first in order has a row in every step, but for one whose every token is drawn by the step before.
void Simulation::check_progress(const ScheduledStep& step) {
  const User* first = nullptr;
  int32_t first_choice = 0;
  for (const auto& [id, user] : users_) {
    for (size_t c = 0; c < user.streams.size(); ++c) {
      const auto choice = static_cast<int32_t>(c);
      if (!user.streams[c].is_ended && (first == nullptr || is_before(user, choice, *first, first_choice))) {
        first = &user;
        first_choice = choice;
      }
    }
  }
  if (first == nullptr) {
    return broke(fmt::format("step {} is for nobody", step.id));
  }
  const SequenceId id{first->request.id, first_choice};
  const auto is_its = [&](const ScheduledSpan& span) { return span.sequence == id; };
  const bool is_in_flight = device_.num_in_flight() > 0;
  if (!is_in_flight && std::ranges::none_of(step.spans, is_its)) {
    broke(
        fmt::format("step {} has no row of request {}, choice {}, which is the first", step.id, id.request, id.choice));
  }
}

bool Simulation::is_before(const User& a, int32_t a_choice, const User& b, int32_t b_choice) const {
  return std::tuple(a.request.priority, a.arrival, a_choice) < std::tuple(b.request.priority, b.arrival, b_choice);
}

// Whether somebody before it computes what it needs too, so that it may wait.
bool Simulation::may_follow(const User& user, int32_t choice) const {
  return std::ranges::any_of(users_, [&](const auto& item) {
    const User& other = item.second;
    if (&other == &user) {
      return choice > 0;
    }
    const auto& a = other.request.prompt_ids;
    const auto& b = user.request.prompt_ids;
    return is_before(other, 0, user, choice) && other.request.cache_salt == user.request.cache_salt &&
           a.size() >= kBlockPositions && b.size() > kBlockPositions &&
           std::equal(a.begin(), a.begin() + kBlockPositions, b.begin());
  });
}

void Simulation::check_start_order(const ScheduledStep& step) {
  for (const ScheduledSpan& span : step.spans) {
    users_.at(span.sequence.request).streams[static_cast<size_t>(span.sequence.choice)].is_started = true;
  }
  if (step.head_rows.size() == static_cast<size_t>(options_.scheduler.max_head_rows)) {
    return;  // one that needs a head row may have been passed by one that needs none
  }
  for (const ScheduledSpan& span : step.spans) {
    const User& later = users_.at(span.sequence.request);
    for (const auto& [id, user] : users_) {
      for (size_t c = 0; c < user.streams.size(); ++c) {
        const Stream& stream = user.streams[c];
        const auto choice = static_cast<int32_t>(c);
        if (!stream.is_ended && !stream.is_started && user.request.priority == later.request.priority &&
            is_before(user, choice, later, span.sequence.choice) && !may_follow(user, choice)) {
          broke(fmt::format("step {}: request {}, choice {} waits behind request {}", step.id, id, c,
                            span.sequence.request));
        }
      }
    }
  }
}

// Rows that are wanted and not drawn: each prompt row of a request that wants all, once and in order.
void Simulation::check_logit_rows(const ScheduledStep& step) {
  for (const ScheduledRow& row : step.rows) {
    User& user = users_.at(row.sequence.request);
    const auto num_prompt = static_cast<int32_t>(user.request.prompt_ids.size());
    if (user.request.prompt_logits && row.sequence.choice == 0 && row.position <= num_prompt) {
      if (row.position != ++user.num_prompt_logits || row.is_sampled != (row.position == num_prompt)) {
        broke(fmt::format("step {}: the logits of row {} of request {} come after {}", step.id, row.position,
                          row.sequence.request, user.num_prompt_logits - 1));
      }
    } else if (!row.is_sampled) {
      broke(fmt::format("step {}: nobody wants the logits of a row of request {}", step.id, row.sequence.request));
    }
  }
}

void Simulation::collect() {
  if (device_.num_in_flight() == 0) {
    return;
  }
  const ScheduledStep done = device_.oldest();
  std::vector<int32_t> ids = device_.collect();
  if (options_.with_failures && !ids.empty() && choose_(64) == 0) {
    ids[choose_(static_cast<uint32_t>(ids.size()))] = -1;
  }
  const auto tokens = scheduler_->complete(done.id, ids);
  if (!tokens) {
    return broke(tokens.error().message);
  }
  size_t next = 0;
  for (size_t row = 0; row < done.rows.size(); ++row) {
    const SequenceId& id = done.rows[row].sequence;
    const auto user = users_.find(id.request);
    const bool is_dropped = user == users_.end() || user->second.streams[static_cast<size_t>(id.choice)].is_ended;
    if (!done.rows[row].is_sampled || is_dropped) {
      continue;
    }
    if (next == tokens->size() || (*tokens)[next].row != static_cast<int32_t>(row) || (*tokens)[next].sequence != id ||
        (*tokens)[next].token != ids[row]) {
      return broke(fmt::format("step {}: the token of row {} was lost", done.id, row));
    }
    take((*tokens)[next++]);
  }
  if (next != tokens->size()) {
    broke(fmt::format("step {}: tokens for sequences that had ended", done.id));
  }
}

void Simulation::take(const NewToken& token) {
  User& user = users_.at(token.sequence.request);
  Stream& stream = user.streams[static_cast<size_t>(token.sequence.choice)];
  if (token.token < 0) {
    stream.is_ended = true;
    stream.is_whole = false;
    if (token.ended != EndReason::kFailed) {
      broke(fmt::format("request {} goes on without logits", token.sequence.request));
    }
    return;
  }
  const size_t index = stream.tokens.size();
  stream.tokens.push_back(token.token);
  if (index >= stream.expected.size() || stream.expected[index] != token.token ||
      token.index != static_cast<int32_t>(index)) {
    return broke(fmt::format("request {}, choice {}: token {} is {}, alone it is {}", token.sequence.request,
                             token.sequence.choice, index, token.token,
                             index < stream.expected.size() ? stream.expected[index] : -1));
  }
  const bool is_last = stream.tokens.size() == static_cast<size_t>(user.request.max_new_tokens);
  if ((token.ended == EndReason::kLength) != is_last) {
    return broke(fmt::format("request {} ended at {} tokens", token.sequence.request, stream.tokens.size()));
  }
  if (!is_last && stops(token.token, user.stop_every) && !scheduler_->finish(token.sequence, EndReason::kStop)) {
    return broke(fmt::format("request {} cannot be finished", token.sequence.request));
  }
  stream.is_ended = is_last || stops(token.token, user.stop_every);
}

// The newest step: the device refused it, or it was lost.
void Simulation::fail_step() {
  if (device_.num_in_flight() != 1) {
    return;
  }
  const ScheduledStep lost = device_.oldest();
  device_.collect();
  if (!scheduler_->fail(lost.id)) {
    broke(fmt::format("step {} cannot fail", lost.id));
  }
  for (const ScheduledSpan& span : lost.spans) {
    if (const auto user = users_.find(span.sequence.request); user != users_.end()) {
      Stream& stream = user->second.streams[static_cast<size_t>(span.sequence.choice)];
      stream.is_whole = stream.is_whole && stream.is_ended;
      stream.is_ended = true;
    }
  }
}

void Simulation::take_ended() {
  for (const RequestInfo& info : scheduler_->take_ended()) {
    const auto found = users_.find(info.id);
    if (found == users_.end()) {
      return broke(fmt::format("request {} ended twice", info.id));
    }
    const User& user = found->second;
    for (size_t c = 0; c < user.streams.size(); ++c) {
      const Stream& stream = user.streams[c];
      if (!stream.is_ended || (stream.is_whole && stream.tokens != stream.expected)) {
        return broke(fmt::format("request {}, choice {} ended with {} tokens of {}", info.id, c, stream.tokens.size(),
                                 stream.expected.size()));
      }
      if (info.num_new_tokens[c] != static_cast<int32_t>(stream.tokens.size()) || !info.reasons[c]) {
        return broke(fmt::format("request {}: {} tokens reported, {} came", info.id, info.num_new_tokens[c],
                                 stream.tokens.size()));
      }
    }
    const RequestTimes& times = info.times;
    if (!times.ended || *times.ended < times.queued || (times.first_token && *times.first_token > *times.ended) ||
        (times.first_token && (!times.first_scheduled || *times.first_scheduled > *times.first_token)) ||
        info.num_cached_tokens >= info.num_prompt_tokens) {
      return broke(fmt::format("request {}: times out of order, or too many cached tokens", info.id));
    }
    ++num_finished_;
    users_.erase(found);
  }
}

void Simulation::check() {
  take_ended();
  if (const auto held = scheduler_->check_invariants(); !held) {
    broke(held.error().message);
  }
  if (scheduler_->stats().num_scheduled_tokens != device_.num_rows()) {
    broke("rows scheduled and rows executed differ");
  }
}

void Simulation::drain() {
  // Each step the first in order computes a row at least, and each is first once.
  size_t bound = 16;
  for (const auto& [id, user] : users_) {
    bound += user.streams.size() * 2 *
             (user.request.prompt_ids.size() + static_cast<size_t>(user.request.max_new_tokens) + 2);
  }
  for (; error_.empty() && !(users_.empty() && device_.num_in_flight() == 0); --bound) {
    if (bound == 0) {
      return broke("somebody starves");
    }
    step();
    collect();
    check();
  }
  const SchedulerStats stats = scheduler_->stats();
  if (error_.empty() && (!scheduler_->idle() || stats.num_blocks_used != 0 || pool_.num_free() != pool_.num_blocks())) {
    broke(fmt::format("at the end {} blocks are in use", stats.num_blocks_used));
  }
}

}  // namespace kipp::simulation
