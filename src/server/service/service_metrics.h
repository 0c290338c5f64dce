// What the service measures of its requests, in the units and buckets of vLLM's metrics: written by the thread that
// owns the model, read by whoever is asked for them.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/batch_engine.h"
#include "server/metrics/histogram.h"

namespace kipp {

enum class FinishedReason : uint8_t { kStop, kLength, kAbort, kError };
inline constexpr size_t kNumFinishedReasons = 4;
inline constexpr std::array<const char*, kNumFinishedReasons> kFinishedReasonNames = {"stop", "length", "abort",
                                                                                      "error"};

struct ServiceMetrics {
  ServiceMetrics();

  // Seconds, of each prompt with all its choices; from the moment its request had arrived.
  metrics::Histogram first_token;
  metrics::Histogram queue;      // to the first step with a row of it
  metrics::Histogram prefill;    // from there to the first token
  metrics::Histogram decode;     // from there to the end
  metrics::Histogram inference;  // the two together
  metrics::Histogram end_to_end;
  metrics::Histogram prompt_tokens;
  // Of each choice.
  metrics::Histogram inter_token;       // seconds between two tokens
  metrics::Histogram per_output_token;  // their mean, at the end
  metrics::Histogram generation_tokens;
  std::array<std::atomic<uint64_t>, kNumFinishedReasons> num_finished = {};
  // Of each step.
  metrics::Histogram step_tokens;     // rows
  metrics::Histogram step_sequences;  // that have rows in it

  std::atomic<uint64_t> num_prompt_tokens = 0;  // of prompts that were evaluated, what was cached included
  std::atomic<uint64_t> num_generation_tokens = 0;
};

// Measures one request on its way through the engine.
class RequestMeter {
 public:
  using Time = SchedulerTime;
  // The metrics outlive it.
  RequestMeter(ServiceMetrics& metrics, Time arrived, size_t num_prompt_tokens, int32_t num_choices);

  void note_token(int32_t choice, Time now);
  void note_end(const BatchEnd& end);
  void note_finished(const RequestInfo& info);

 private:
  struct Choice {
    uint64_t num_tokens = 0;
    Time first = {};
    Time last = {};
  };
  void note_first_token(Time now);

  ServiceMetrics& metrics_;
  Time arrived_;
  size_t num_prompt_tokens_;
  bool has_token_ = false;
  std::vector<Choice> choices_;
};

}  // namespace kipp
