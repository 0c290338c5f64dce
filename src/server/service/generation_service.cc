// See generation_service.h. The lock is never held while the engine works.
#include "server/service/generation_service.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace kipp {
namespace {

constexpr int32_t kMostRetrySeconds = 60;
constexpr double kNewestWeight = 0.1;  // of the running mean

tl::unexpected<Refusal> refuse(Refusal::Kind kind, Error error, int32_t retry_after_seconds = 0) {
  return tl::unexpected<Refusal>(Refusal{kind, std::move(error), retry_after_seconds});
}

}  // namespace

// Counts and measures what becomes of a request on the way to its owner, who finds it counted when it is told.
class GenerationService::CountingSink final : public BatchSink {
 public:
  CountingSink(GenerationService& service, const Order& order)
      : service_(service),
        owner_(order.sink),
        meter_(service.metrics_, order.arrived, order.request.prompt_ids.size(), order.request.num_choices),
        has_token_(static_cast<size_t>(order.request.num_choices), false) {}

  void on_prompt_logprobs(std::span<const SampledToken> tokens) override { owner_->on_prompt_logprobs(tokens); }
  bool on_token(const BatchToken& token) override {
    note_token(static_cast<size_t>(token.choice));
    meter_.note_token(token.choice, std::chrono::steady_clock::now());
    return owner_->on_token(token);
  }
  void on_end(const BatchEnd& end) override {
    meter_.note_end(end);
    owner_->on_end(end);
  }
  void on_finished(const RequestInfo& info) override {
    meter_.note_finished(info);
    owner_->on_finished(info);
    // Only now: drain() may return as soon as it knows.
    service_.note_finished(info, static_cast<int32_t>(std::ranges::count(has_token_, false)), any_token_);
  }

 private:
  void note_token(size_t choice) {
    if (has_token_[choice]) return;
    has_token_[choice] = true;
    service_.note_first_token(!std::exchange(any_token_, true));
  }

  GenerationService& service_;
  std::shared_ptr<BatchSink> owner_;
  RequestMeter meter_;
  std::vector<bool> has_token_;  // [choices]
  bool any_token_ = false;
};

Result<std::unique_ptr<GenerationService>> GenerationService::start(Model& model, ServiceOptions options) {
  std::unique_ptr<GenerationService> service(new GenerationService(options.max_waiting));
  KIPP_ASSIGN(service->engine_, BatchEngine::create(model, std::move(options.engine)));
  service->thread_ = std::thread([&self = *service] { self.run(); });
  return service;
}

GenerationService::~GenerationService() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = cancels_all_ = ends_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

tl::expected<std::vector<uint64_t>, Refusal> GenerationService::submit(std::vector<Order> orders) {
  for (const Order& order : orders) {
    if (auto checked = engine_->check(order.request); !checked) {
      return refuse(Refusal::Kind::kInvalid, std::move(checked).error());
    }
  }
  const auto count = static_cast<int32_t>(orders.size());
  int32_t num_choices = 0;  // no overflow: the API has at most 1,024 of a request
  for (const Order& order : orders) num_choices += order.request.num_choices;
  std::vector<uint64_t> ids;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) {
      return refuse(Refusal::Kind::kStopping, Error{ErrorCode::kUnsupported, "the server is shutting down"});
    }
    const int32_t num_before = stats_.num_waiting_choices;
    if (num_before > 0 && num_before + num_choices > max_waiting_) {  // what is alone is taken at any size
      ++stats_.num_refused_busy;
      std::string message = fmt::format("{} answers wait to begin and {} more are asked for; at most {} may",
                                        num_before, num_choices, max_waiting_);
      return refuse(Refusal::Kind::kBusy, Error{ErrorCode::kCapacity, std::move(message)}, retry_after());
    }
    stats_.num_taken += orders.size();
    stats_.num_requests += count;
    stats_.num_waiting += count;
    stats_.num_waiting_choices += num_choices;
    for (Order& order : orders) {
      stats_.num_arriving += order.request.num_choices;
      order.sink = std::make_shared<CountingSink>(*this, order);
      ids.push_back(next_id_);
      submitted_.push_back({next_id_++, std::move(order)});
    }
  }
  wake_.notify_one();
  return ids;
}

// How long until as many have ended as wait, if they go on ending as they did.
int32_t GenerationService::retry_after() const {
  const int32_t num_running = std::max(1, stats_.num_requests - stats_.num_waiting);
  const double seconds = mean_seconds_ * stats_.num_waiting / num_running;
  return std::clamp(static_cast<int32_t>(std::ceil(seconds)), 1, kMostRetrySeconds);
}

void GenerationService::cancel(uint64_t id) {
  {
    const std::lock_guard lock(mutex_);
    cancelled_.push_back(id);
  }
  wake_.notify_one();
}

bool GenerationService::drain(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  const auto is_idle = [this] { return stats_.num_requests == 0; };
  if (idle_.wait_until(lock, deadline, is_idle)) return true;
  cancels_all_ = true;
  wake_.notify_one();
  idle_.wait(lock, is_idle);
  return false;
}

ServiceStats GenerationService::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void GenerationService::note_first_token(bool of_request) {
  const std::lock_guard lock(mutex_);
  --stats_.num_waiting_choices;
  if (of_request) --stats_.num_waiting;
}

void GenerationService::note_finished(const RequestInfo& info, int32_t num_silent_choices, bool had_token) {
  const bool ran_to_its_end = had_token && std::ranges::all_of(info.reasons, [](std::optional<EndReason> reason) {
                                return reason == EndReason::kStop || reason == EndReason::kLength;
                              });
  const std::lock_guard lock(mutex_);
  if (ran_to_its_end && info.times.ended) {
    const std::chrono::duration<double> seconds = *info.times.ended - info.times.queued;
    mean_seconds_ += kNewestWeight * (seconds.count() - mean_seconds_);
  }
  stats_.num_waiting_choices -= num_silent_choices;
  if (!had_token) --stats_.num_waiting;
  if (--stats_.num_requests == 0) idle_.notify_all();
}

// What check() passed can be refused only by a broken invariant; its owner hears of it all the same.
void GenerationService::admit(Submission submission) {
  BatchSink& sink = *submission.order.sink;
  const int32_t num_choices = submission.order.request.num_choices;
  const auto added = engine_->add_checked(submission.id, std::move(submission.order.request), submission.order.sink);
  if (added) return;
  for (int32_t c = 0; c < num_choices; ++c) sink.on_end({.choice = c, .error = added.error()});
  sink.on_finished({.id = submission.id});
}

// Waits until there is something to do; false: the thread leaves.
bool GenerationService::take_orders(Orders& orders) {
  std::unique_lock lock(mutex_);
  stats_.scheduler = engine_->stats();
  stats_.num_arriving = 0;
  for (const Submission& submission : submitted_) stats_.num_arriving += submission.order.request.num_choices;
  const auto has_orders = [this] { return !submitted_.empty() || !cancelled_.empty() || cancels_all_ || ends_; };
  if (engine_->num_requests() == 0) wake_.wait(lock, has_orders);
  orders.submitted.swap(submitted_);
  orders.cancelled.swap(cancelled_);
  orders.cancels_all = std::exchange(cancels_all_, false);
  return !ends_ || !orders.submitted.empty() || engine_->num_requests() > 0;
}

void GenerationService::run() {
  Orders orders;
  while (take_orders(orders)) {
    for (Submission& submission : orders.submitted) admit(std::move(submission));
    for (const uint64_t id : orders.cancelled) engine_->cancel(id);
    if (orders.cancels_all) engine_->cancel_all();
    orders = {};
    const SchedulerStats before = engine_->stats();
    engine_->advance();
    note_step(before);
  }
}

// advance() makes one step at most.
void GenerationService::note_step(const SchedulerStats& before) {
  const SchedulerStats after = engine_->stats();
  if (after.num_steps == before.num_steps) return;
  metrics_.step_tokens.observe(static_cast<double>(after.num_scheduled_tokens - before.num_scheduled_tokens));
  metrics_.step_sequences.observe(static_cast<double>(after.num_scheduled_spans - before.num_scheduled_spans));
}

}  // namespace kipp
