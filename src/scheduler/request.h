// What the scheduler is told and what it tells about requests: plain data.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace kipp {

using SchedulerTime = std::chrono::steady_clock::time_point;
using SchedulerClock = std::function<SchedulerTime()>;

// A request asks for one or more choices: sequences that begin with the same prompt and go on each on its own.
struct SchedulerRequest {
  uint64_t id = 0;  // the caller's; not one that is still known
  std::vector<int32_t> prompt_ids = {};
  int32_t max_new_tokens = 1;  // of each choice
  int32_t num_choices = 1;     // n
  int32_t priority = 0;        // lower is served first; equal ones in the order of add()
  std::string cache_salt = {};
  bool prompt_logits = false;  // choice 0 evaluates the whole prompt, and all its rows are head rows (echo)
};

// A choice of a request.
struct SequenceId {
  uint64_t request = 0;
  int32_t choice = 0;
  bool operator==(const SequenceId&) const = default;
};

enum class EndReason : uint8_t {
  kStop,       // the caller's decision: a stop token, a stop string
  kLength,     // max_new_tokens; the scheduler's decision
  kCancelled,  // nobody wants the rest
  kFailed,     // its step failed, or its logits were not finite
};
inline constexpr size_t kNumEndReasons = 4;

enum class RefusalReason : uint8_t {
  kInvalid,  // no prompt, no tokens, no choices, an id in use
  kContext,  // prompt and new tokens exceed the context
  kPool,     // they exceed the KV pool
};
inline constexpr size_t kNumRefusalReasons = 3;

// From the injected clock.
struct RequestTimes {
  SchedulerTime queued = {};
  std::optional<SchedulerTime> first_scheduled = {};  // the first step with a row of it was made
  std::optional<SchedulerTime> first_token = {};      // of any choice
  std::optional<SchedulerTime> ended = {};            // the last choice's end
};

struct RequestInfo {
  uint64_t id = 0;
  int32_t num_prompt_tokens = 0;
  int32_t num_cached_tokens = 0;  // of the prompt, taken from the prefix index when it was evaluated first
  int32_t num_preemptions = 0;
  RequestTimes times = {};
  std::vector<int32_t> num_new_tokens = {};            // [choices]
  std::vector<std::optional<EndReason>> reasons = {};  // [choices] nothing: it still goes on
};

struct SchedulerStats {
  int32_t num_waiting = 0;  // sequences, preempted ones included
  int32_t num_running = 0;
  int32_t num_blocks_used = 0;
  int32_t num_blocks_cached = 0;  // in nobody's table, but findable; evicted when others are needed
  int32_t num_blocks_free = 0;    // blank
  // Since the scheduler was made.
  uint64_t num_preemptions = 0;
  uint64_t num_steps = 0;
  uint64_t num_scheduled_tokens = 0;                          // rows of all steps
  uint64_t num_scheduled_spans = 0;                           // sequences with rows in a step, over all steps
  uint64_t num_dropped_tokens = 0;                            // sampled ahead for a choice that had ended
  uint64_t num_recomputed_tokens = 0;                         // rows evaluated again after a preemption
  uint64_t num_prefix_query_tokens = 0;                       // of prompts that were looked up when evaluated first
  uint64_t num_prefix_hit_tokens = 0;                         // of these, taken from the index
  std::array<uint64_t, kNumEndReasons> num_ended = {};        // sequences, by EndReason
  std::array<uint64_t, kNumRefusalReasons> num_refused = {};  // requests, by RefusalReason
};

}  // namespace kipp
