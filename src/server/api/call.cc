// See call.h. An error before the first byte of a stream is an HTTP status, after it an event.
#include "server/api/call.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

namespace kipp::api {
namespace {

double milliseconds(std::optional<SchedulerTime> from, std::optional<SchedulerTime> to) {
  return from && to ? std::chrono::duration<double, std::milli>(*to - *from).count() : 0.0;
}

openai::Finish finish_reason_of(const BatchEnd& end) {
  if (end.error) return openai::Finish::kError;
  switch (end.reason) {
    case FinishReason::kStop: return openai::Finish::kStop;
    case FinishReason::kLength: return openai::Finish::kLength;
    case FinishReason::kCancelled: return openai::Finish::kAbort;
  }
  return openai::Finish::kError;
}

const char* finish_name(openai::Finish finish) {
  switch (finish) {
    case openai::Finish::kStop: return "stop";
    case openai::Finish::kLength: return "length";
    case openai::Finish::kAbort: return "abort";
    case openai::Finish::kError: return "error";
  }
  return "error";
}

}  // namespace

// Tells the call which prompt it is about.
class Call::Sink final : public BatchSink {
 public:
  Sink(std::shared_ptr<Call> call, size_t prompt) : call_(std::move(call)), prompt_(prompt) {}

  void on_prompt_logprobs(std::span<const SampledToken> tokens) override { call_->on_prompt(prompt_, tokens); }
  bool on_token(const BatchToken& token) override {
    if (call_->failed_) return false;
    if (call_->evaluates_only()) return true;  // max_tokens ends it
    ++call_->usage_.completion_tokens;
    return call_->on_token(index_of(token.choice), token);
  }
  void on_end(const BatchEnd& end) override {
    if (end.reason == FinishReason::kCancelled && !call_->context_.exchange->is_open()) {
      return call_->take_leave(index_of(end.choice));
    }
    if (call_->failed_) return;
    if (end.error) return call_->fail(openai::api_error(*end.error));
    const bool is_unanswered = call_->usage_.completion_tokens == 0 && !call_->begun_;
    if (end.reason == FinishReason::kCancelled && is_unanswered) {  // nobody asked for it but the end of the server
      return call_->fail({.status = 503,
                          .type = "server_error",
                          .code = "shutting_down",
                          .message = "the server ended before it came to this request"});
    }
    if (call_->evaluates_only() && end.reason != FinishReason::kCancelled) {
      return call_->take_end(index_of(end.choice), {.choice = end.choice}, openai::Finish::kLength);
    }
    call_->take_end(index_of(end.choice), end, finish_reason_of(end));
  }
  void on_finished(const RequestInfo& info) override { call_->take_finished(prompt_, info); }

 private:
  size_t index_of(int32_t choice) const {
    return prompt_ * static_cast<size_t>(call_->generation_.n) + static_cast<size_t>(choice);
  }

  std::shared_ptr<Call> call_;
  size_t prompt_;
};

Call::Call(CallContext context, const openai::Generation& generation, bool is_chat,
           std::vector<int32_t> num_prompt_tokens)
    : context_(std::move(context)),
      generation_(generation),
      is_chat_(is_chat),
      stream_(openai::stream_options(context_.identity, generation)),
      num_prompt_tokens_(std::move(num_prompt_tokens)),
      finishes_(num_choices(), openai::Finish::kError) {
  for (const int32_t count : num_prompt_tokens_) usage_.prompt_tokens += count;
}

GenerationNotes Call::notes() const {
  return {.id = context_.identity.id, .stream = streams(), .prompt_tokens = usage_.prompt_tokens};
}

std::vector<std::shared_ptr<BatchSink>> Call::make_sinks() {
  std::vector<std::shared_ptr<BatchSink>> sinks;
  sinks.reserve(num_prompt_tokens_.size());
  for (size_t prompt = 0; prompt < num_prompt_tokens_.size(); ++prompt) {
    sinks.push_back(std::make_shared<Sink>(shared_from_this(), prompt));
  }
  return sinks;
}

std::vector<openai::TokenLogprob> Call::logprob_of(const SampledToken& token) const {
  if (!wants_logprobs()) return {};
  auto logprob = openai::token_logprob(token, context_.tokenizer);
  if (!logprob) return {};  // an id that no sampler draws
  return {*std::move(logprob)};
}

void Call::send(std::string events) {
  if (events.empty() || failed_) return;
  if (!std::exchange(begun_, true)) {
    context_.exchange->begin_stream(
        {.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}, .content_type = "text/event-stream"});
  }
  context_.exchange->write(std::move(events));
}

// The client is gone: whatever is said goes nowhere, and no error is to be counted; unless it was told of one before.
void Call::take_leave(size_t index) {
  GenerationNotes& notes = *context_.exchange->generation();
  if (failed_ && !notes.was_cancelled) return;
  finishes_[index] = openai::Finish::kAbort;
  notes.was_cancelled = true;
  failed_ = true;
}

void Call::fail(const openai::ApiError& api_error) {
  if (failed_) return;
  if (streams() && begun_) {
    context_.exchange->note_error(api_error);
    send(openai::sse_error(api_error));
    context_.exchange->end_stream();
  } else {
    context_.exchange->refuse(api_error);
  }
  failed_ = true;
  std::function<void()> cancel;
  {
    const std::lock_guard lock(mutex_);
    cancels_ = true;
    cancel.swap(cancel_);
  }
  if (cancel) cancel();  // the other prompts' answers are nobody's
}

void Call::on_failure(std::function<void()> cancel) {
  {
    const std::lock_guard lock(mutex_);
    if (!cancels_) {
      cancel_ = std::move(cancel);
      return;
    }
  }
  cancel();
}

// The finish of an answer of one choice waits for the timings.
void Call::take_end(size_t index, const BatchEnd& end, openai::Finish finish) {
  on_end(index, end);
  finishes_[index] = finish;
  if (streams() && num_choices() > 1) send(finish_events(index, finish, nullptr));
}

void Call::take_finished(size_t prompt, const RequestInfo& info) {
  usage_.cached_tokens += info.num_cached_tokens;
  const RequestTimes& times = info.times;
  timings_.cached_tokens += info.num_cached_tokens;
  timings_.prompt_tokens += num_prompt_tokens_[prompt] - info.num_cached_tokens;
  timings_.prompt_ms = std::max(timings_.prompt_ms, milliseconds(times.first_scheduled, times.first_token));
  timings_.predicted_ms = std::max(timings_.predicted_ms, milliseconds(times.first_token, times.ended));
  timings_.predicted_tokens = usage_.completion_tokens;
  note_times(times);
  if (++num_finished_ < num_prompt_tokens_.size()) return;
  note_finishes();
  if (!failed_) complete();
}

void Call::note_times(const RequestTimes& times) {
  GenerationNotes& notes = *context_.exchange->generation();
  const SchedulerTime arrived = context_.exchange->request().received;
  const auto note_latest = [&](std::optional<double>& known, const std::optional<SchedulerTime>& time) {
    if (time) known = std::max(known.value_or(0.0), milliseconds(arrived, time));
  };
  note_latest(notes.queue_ms, times.first_scheduled);
  note_latest(notes.first_token_ms, times.first_token);
}

void Call::note_finishes() {
  GenerationNotes& notes = *context_.exchange->generation();
  notes.cached_tokens = usage_.cached_tokens;
  notes.generated_tokens = usage_.completion_tokens;
  for (const openai::Finish finish : finishes_) notes.finish_reasons.emplace_back(finish_name(finish));
}

void Call::complete() {
  if (!streams()) {
    context_.exchange->respond({.body = write_json(whole_answer(timings_))});
    return;
  }
  std::string events;
  if (num_choices() == 1) events = finish_events(0, finishes_[0], &timings_);
  events += openai::stream_usage(stream_, is_chat_, usage_);
  send(events + std::string(openai::kSseDone));
  context_.exchange->end_stream();
}

BatchRequest batch_request(const openai::Generation& generation, std::vector<int32_t> prompt_ids,
                           const std::vector<int32_t>& stop_token_ids, uint64_t seed) {
  BatchRequest request{.prompt_ids = std::move(prompt_ids),
                       .sampling = generation.sampling,
                       .seed = seed,
                       .num_choices = generation.n,
                       .max_tokens = generation.max_tokens ? std::max(1, *generation.max_tokens) : -1,
                       .min_tokens = generation.min_tokens,
                       .stop_token_ids = generation.stop_token_ids,
                       .stop = generation.stop,
                       .num_logprobs = generation.num_logprobs,
                       .priority = generation.priority,
                       .cache_salt = generation.cache_salt};
  if (!generation.ignore_eos) {
    request.stop_token_ids.insert(request.stop_token_ids.end(), stop_token_ids.begin(), stop_token_ids.end());
  }
  return request;
}

}  // namespace kipp::api
