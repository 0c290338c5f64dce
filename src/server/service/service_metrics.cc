// Bounds of the buckets (vLLM's, and some below for what is faster), and which moment ends which time.
#include "server/service/service_metrics.h"

#include <chrono>

namespace kipp {
namespace {

constexpr std::array kFirstTokenSeconds = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25,  0.5,   0.75,
                                           1.0,   2.5,   5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0};
constexpr std::array kTokenSeconds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1,  0.15, 0.2,  0.3,
                                      0.4,   0.5,    0.75,  1.0,  2.5,   5.0,  7.5,   10.0, 20.0, 40.0, 80.0};
constexpr std::array kRequestSeconds = {0.01, 0.05, 0.1,  0.3,  0.5,  0.8,  1.0,   1.5,   2.0,   2.5,   5.0,    10.0,
                                        15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};
constexpr std::array kTokens = {1.0,   2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0,
                                500.0, 1e3, 2e3, 5e3,  1e4,  2e4,  5e4,   1e5};
constexpr std::array kPowersOfTwo = {1.0,   2.0,   4.0,   8.0,    16.0,   32.0,   64.0,  128.0,
                                     256.0, 512.0, 1024., 2048.0, 4096.0, 8192.0, 16384.};

double seconds(SchedulerTime from, SchedulerTime to) {
  return std::chrono::duration<double>(to - from).count();
}

FinishedReason reason_of(const BatchEnd& end) {
  if (end.error) return FinishedReason::kError;
  switch (end.reason) {
    case FinishReason::kStop: return FinishedReason::kStop;
    case FinishReason::kLength: return FinishedReason::kLength;
    case FinishReason::kCancelled: return FinishedReason::kAbort;
  }
  return FinishedReason::kError;
}

}  // namespace

ServiceMetrics::ServiceMetrics()
    : first_token(kFirstTokenSeconds),
      queue(kRequestSeconds),
      prefill(kRequestSeconds),
      decode(kRequestSeconds),
      inference(kRequestSeconds),
      end_to_end(kRequestSeconds),
      prompt_tokens(kTokens),
      inter_token(kTokenSeconds),
      per_output_token(kTokenSeconds),
      generation_tokens(kTokens),
      step_tokens(kPowersOfTwo),
      step_sequences(kPowersOfTwo) {}

RequestMeter::RequestMeter(ServiceMetrics& metrics, Time arrived, size_t num_prompt_tokens, int32_t num_choices)
    : metrics_(metrics),
      arrived_(arrived),
      num_prompt_tokens_(num_prompt_tokens),
      choices_(static_cast<size_t>(num_choices)) {}

void RequestMeter::note_first_token(Time now) {
  if (has_token_) return;
  has_token_ = true;
  metrics_.first_token.observe(seconds(arrived_, now));
  metrics_.num_prompt_tokens += num_prompt_tokens_;
}

void RequestMeter::note_token(int32_t choice, Time now) {
  note_first_token(now);
  ++metrics_.num_generation_tokens;
  Choice& known = choices_[static_cast<size_t>(choice)];
  if (known.num_tokens++ == 0) {
    known.first = now;
  } else {
    metrics_.inter_token.observe(seconds(known.last, now));
  }
  known.last = now;
}

void RequestMeter::note_end(const BatchEnd& end) {
  const Choice& choice = choices_[static_cast<size_t>(end.choice)];
  ++metrics_.num_finished[static_cast<size_t>(reason_of(end))];
  metrics_.generation_tokens.observe(static_cast<double>(choice.num_tokens));
  if (choice.num_tokens < 2) return;
  metrics_.per_output_token.observe(seconds(choice.first, choice.last) / static_cast<double>(choice.num_tokens - 1));
}

// What never came that far has no time of that kind: a request that was cancelled while it waited has none but its end.
void RequestMeter::note_finished(const RequestInfo& info) {
  const RequestTimes& times = info.times;
  if (times.first_token) note_first_token(*times.first_token);  // a stop token came first, which nobody was told of
  const Time ended = times.ended.value_or(std::chrono::steady_clock::now());
  metrics_.end_to_end.observe(seconds(arrived_, ended));
  metrics_.prompt_tokens.observe(static_cast<double>(num_prompt_tokens_));
  if (!times.first_scheduled) return;
  metrics_.queue.observe(seconds(arrived_, *times.first_scheduled));
  metrics_.inference.observe(seconds(*times.first_scheduled, ended));
  if (!times.first_token) return;
  metrics_.prefill.observe(seconds(*times.first_scheduled, *times.first_token));
  metrics_.decode.observe(seconds(*times.first_token, ended));
}

}  // namespace kipp
