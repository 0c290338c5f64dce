// Many requests at once on one model: the scheduler says what a step computes, the backend computes it, and what was
// drawn becomes text. One thread drives it; a server puts a queue before it and sockets behind it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "engine/generate.h"
#include "kipp/engine.h"
#include "kipp/error.h"
#include "kipp/sampling.h"
#include "scheduler/scheduler.h"

namespace kipp {

struct BatchRequest {
  std::vector<int32_t> prompt_ids = {};
  SamplingParams sampling = {};
  uint64_t seed = 0;
  int32_t num_choices = 1;
  // Of each choice. More than the context has room for: as many as it has; < 0: as many as context and pool have.
  int32_t max_tokens = -1;
  int32_t min_tokens = 0;  // no stop token is drawn and no stop string counts before
  std::vector<int32_t> stop_token_ids = {};
  std::vector<std::string> stop = {};
  int32_t num_logprobs = -1;        // as in SampleRequest
  bool prompt_logprobs = false;     // also of the prompt's tokens
  bool skip_special_tokens = true;  // control tokens are ids but no text
  int32_t priority = 0;             // lower is served first
  std::string cache_salt = {};      // requests of different salts share no KV
};

// One drawn token. Stop tokens are not among them.
struct BatchToken {
  int32_t choice;
  const SampledToken& token;
  std::string_view text;  // what may be shown from it on: whole characters that begin no stop string
};

// The end of a choice.
struct BatchEnd {
  int32_t choice = 0;
  FinishReason reason = FinishReason::kLength;
  std::string last_text = {};       // what was held back
  int32_t stop_token = -1;          // with kStop: the token, or -1 if a string ended the text
  std::string stop_string = {};     // with kStop: the string, or empty
  bool context_full = false;        // with kLength: the context was the limit, not max_tokens
  std::optional<Error> error = {};  // its step failed, or its logits were not finite: the text is not whole
};

// What a request's owner is told, by the thread that drives the engine. No call may block.
class BatchSink {
 public:
  virtual ~BatchSink() = default;
  // With prompt_logprobs, before any token: of prompt_ids[1], prompt_ids[2], …; a prompt's first token has none.
  virtual void on_prompt_logprobs(std::span<const SampledToken> tokens) = 0;
  // False ends the choice here, as a stop string would.
  virtual bool on_token(const BatchToken& token) = 0;
  virtual void on_end(const BatchEnd& end) = 0;
  // Once, after every choice's end: nothing names the request any more.
  virtual void on_finished(const RequestInfo& info) = 0;
};

struct BatchEngineOptions {
  bool prefix_cache = true;
  // A step is enqueued while the one before it computes: for backends that compute beside the calling thread.
  bool look_ahead = false;
  SchedulerClock clock = std::chrono::steady_clock::now;
};

class BatchEngine {
 public:
  // The model's free KV blocks are the engine's while it lives; the model outlives it and nobody else steps it. Errors:
  // those of Scheduler::create.
  static Result<std::unique_ptr<BatchEngine>> create(Model& model, BatchEngineOptions options = {});
  static Result<std::unique_ptr<BatchEngine>> create(Model::Impl& model, BatchEngineOptions options);
  ~BatchEngine();
  BatchEngine(const BatchEngine&) = delete;
  BatchEngine& operator=(const BatchEngine&) = delete;

  // What add() refuses, but for an id in use. May be called from any thread. Errors: kInvalidArgument naming the field
  // (ids, sampling, stop strings, counts), kCapacity with both numbers for what can never fit.
  Result<void> check(const BatchRequest& request) const;
  // Queues a request under an id of the caller's that no other request has. Errors: those of check().
  Result<void> add(uint64_t id, BatchRequest request, std::shared_ptr<BatchSink> sink);
  // The same of a request that has passed check(). Errors: kInvalidArgument (an id in use).
  Result<void> add_checked(uint64_t id, BatchRequest request, std::shared_ptr<BatchSink> sink);
  // Ends what is left of a request, with kCancelled. Unknown ones are ended already.
  void cancel(uint64_t id);
  void cancel_all();

  // Enqueues a step, or collects one, or both; false: there was nothing to do. Errors of a step end its requests.
  bool advance();

  SchedulerStats stats() const { return scheduler_->stats(); }
  size_t num_requests() const { return requests_.size(); }
  // For tests: Scheduler::check_invariants().
  Result<void> check_invariants() const { return scheduler_->check_invariants(); }

 private:
  struct Choice;
  struct Request;
  struct InFlight {
    ScheduledStep step;
    StepId id;  // the backend's
    bool reads_logits;
  };

  BatchEngine(Model::Impl& model, BatchEngineOptions options);

  int32_t room_for(const BatchRequest& request) const;
  bool may_enqueue() const;
  bool enqueue();
  Result<StepId> start(const ScheduledStep& step);
  SampleRow sample_row(const ScheduledRow& row) const;
  void collect();
  Result<void> read_prompt_logprobs(const InFlight& step);
  Result<void> read_prompt_logprob(const InFlight& step, size_t row, std::vector<float>& logits);
  void take(const NewToken& token, const SampledToken& sampled);
  void end(Request& request, Choice& choice, BatchEnd end);
  void fail(const ScheduledStep& step, const Error& error);
  void fail(uint64_t id, const Error& error);
  void forget_ended();
  Request* find(uint64_t id) const;

  Model::Impl& model_;
  BatchEngineOptions options_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unordered_map<uint64_t, std::unique_ptr<Request>> requests_;
  std::deque<InFlight> in_flight_;  // oldest first
  int32_t num_with_history_ = 0;    // requests whose draws depend on the ids drawn before
};

}  // namespace kipp
