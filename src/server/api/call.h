// One request of the API that generates, from its tokens to its answer: what both endpoints have in common. The
// service's thread alone calls the sinks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "engine/batch_engine.h"
#include "kipp/tokenizer.h"
#include "server/api/transaction.h"
#include "server/openai/answers.h"
#include "server/openai/requests.h"

namespace kipp::api {

// What an answer is made of besides the tokens.
struct CallContext {
  std::shared_ptr<Transaction> exchange;
  const Tokenizer& tokenizer;
  openai::Identity identity;
};

class Call : public std::enable_shared_from_this<Call> {
 public:
  virtual ~Call() = default;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // What is known before it begins. The exchange's alone until then.
  GenerationNotes notes() const;
  // A sink for each prompt. They keep the call alive.
  std::vector<std::shared_ptr<BatchSink>> make_sinks();
  // cancel: ends what is left of the call's requests. Called once if one of them fails, or at once if one has. From any
  // thread; everything else is the service's thread's.
  void on_failure(std::function<void()> cancel);

 protected:
  // num_prompt_tokens: of each prompt.
  Call(CallContext context, const openai::Generation& generation, bool is_chat, std::vector<int32_t> num_prompt_tokens);

  // Of choice `index` of the whole answer: prompt · n + the prompt's choice.
  virtual void on_prompt(size_t prompt, std::span<const SampledToken> logprobs) = 0;
  virtual bool on_token(size_t index, const BatchToken& token) = 0;
  virtual void on_end(size_t index, const BatchEnd& end) = 0;
  // Of a stream: the last chunk of a choice.
  virtual std::string finish_events(size_t index, openai::Finish finish, const openai::Timings* timings) = 0;
  // All choices have ended, without an error.
  virtual Json whole_answer(const openai::Timings& timings) const = 0;

  // max_tokens 0: only the prompt's log-probabilities are wanted. A token is drawn all the same, for nobody.
  bool evaluates_only() const { return generation_.max_tokens == 0; }
  bool streams() const { return generation_.stream; }
  bool wants_logprobs() const { return generation_.num_logprobs >= 0; }
  size_t num_choices() const { return num_prompt_tokens_.size() * static_cast<size_t>(generation_.n); }
  size_t prompt_of(size_t index) const { return index / static_cast<size_t>(generation_.n); }
  const CallContext& context() const { return context_; }
  const openai::Generation& generation() const { return generation_; }
  openai::Usage& usage() { return usage_; }
  const openai::Usage& usage() const { return usage_; }
  const openai::StreamOptions& stream() const { return stream_; }
  openai::Finish finish_of(size_t index) const { return finishes_[index]; }
  std::vector<openai::TokenLogprob> logprob_of(const SampledToken& token) const;
  void send(std::string events);

 private:
  class Sink;

  void take_end(size_t index, const BatchEnd& end, openai::Finish finish);
  void take_finished(size_t prompt, const RequestInfo& info);
  void note_times(const RequestTimes& times);
  void note_finishes();
  void take_leave(size_t index);
  void fail(const openai::ApiError& error);
  void complete();

  CallContext context_;
  openai::Generation generation_;
  bool is_chat_;
  openai::StreamOptions stream_;
  openai::Usage usage_;
  openai::Timings timings_;
  std::vector<int32_t> num_prompt_tokens_;  // of each prompt
  std::vector<openai::Finish> finishes_;    // [choices]
  size_t num_finished_ = 0;
  bool begun_ = false;   // the stream's head was sent
  bool failed_ = false;  // the client was told of an error, or has left: nothing follows

  std::mutex mutex_;  // of what follows
  std::function<void()> cancel_;
  bool cancels_ = false;
};

// What the service is asked for, but for the prompt.
BatchRequest batch_request(const openai::Generation& generation, std::vector<int32_t> prompt_ids,
                           const std::vector<int32_t>& stop_token_ids, uint64_t seed);

}  // namespace kipp::api
