// See batch_engine.h. Text goes decoder -> stop matcher -> sink, as in generate.cc.
#include "engine/batch_engine.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "engine/model_impl.h"
#include "engine/stop_matcher.h"
#include "sampling/logprobs.h"
#include "sampling/request.h"

namespace kipp {
namespace {

constexpr int32_t kMaxChoices = 128;

tl::unexpected<Error> invalid(std::string message) {
  return make_error(ErrorCode::kInvalidArgument, std::move(message));
}

// In the order in which validate() has least to do, which every draw calls.
void sort_bias(SamplingParams& params) {
  std::ranges::sort(params.logit_bias, {}, &std::pair<int32_t, float>::first);
}

// The same parameters with some ids banned.
SamplingParams without(SamplingParams params, std::vector<int32_t> ids) {
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  std::erase_if(params.logit_bias, [&](const auto& entry) { return std::ranges::binary_search(ids, entry.first); });
  for (const int32_t id : ids) params.logit_bias.emplace_back(id, -std::numeric_limits<float>::infinity());
  sort_bias(params);
  return params;
}

bool depends_on_history(const SamplingParams& params) {
  return has_repetition_penalty(params) || has_count_penalty(params);
}

Result<void> check_ids(const char* name, std::span<const int32_t> ids, int32_t num_tokens) {
  const auto wrong = std::ranges::find_if(ids, [=](int32_t id) { return id < 0 || id >= num_tokens; });
  if (wrong == ids.end()) return {};
  return invalid(fmt::format("{}[{}]: expected a token id from 0 to {}, found {}", name, wrong - ids.begin(),
                             num_tokens - 1, *wrong));
}

}  // namespace

// One of a request's texts.
struct BatchEngine::Choice {
  StreamDecoder decoder;
  StopMatcher stop;
  std::vector<int32_t> ids;  // drawn, stop token left out
  bool ended = false;
};

struct BatchEngine::Request {
  BatchRequest asked;
  SamplingParams early;  // while stop tokens may not be drawn; with min_tokens
  bool has_history = false;
  bool context_limits = false;
  std::shared_ptr<BatchSink> sink;
  std::vector<Choice> choices = {};
  std::vector<SampledToken> prompt_logprobs = {};
};

BatchEngine::BatchEngine(Model::Impl& model, BatchEngineOptions options)
    : model_(model), options_(std::move(options)) {}

BatchEngine::~BatchEngine() {
  while (!in_flight_.empty()) {  // what is enqueued still writes to the model's blocks
    std::vector<RowResult> results(in_flight_.front().step.rows.size());
    static_cast<void>(model_.backend->collect(in_flight_.front().id, results));
    in_flight_.pop_front();
  }
}

Result<std::unique_ptr<BatchEngine>> BatchEngine::create(Model& model, BatchEngineOptions options) {
  return create(*model.impl_, std::move(options));
}

Result<std::unique_ptr<BatchEngine>> BatchEngine::create(Model::Impl& model, BatchEngineOptions options) {
  std::unique_ptr<BatchEngine> engine(new BatchEngine(model, std::move(options)));
  const Limits& limits = model.limits;
  KIPP_ASSIGN(engine->scheduler_, Scheduler::create(model.pool, {.max_tokens_per_step = limits.max_tokens_per_step,
                                                                 .max_sequences = limits.max_sequences,
                                                                 .max_head_rows = limits.max_head_rows,
                                                                 .context = limits.context,
                                                                 .look_ahead = engine->options_.look_ahead,
                                                                 .prefix_cache = engine->options_.prefix_cache,
                                                                 .clock = engine->options_.clock}));
  return engine;
}

Result<void> BatchEngine::check(const BatchRequest& request) const {
  const int32_t num_tokens = model_.tokenizer.num_tokens();
  if (request.prompt_ids.empty()) return invalid("the prompt is empty: there is nothing to predict from");
  KIPP_TRY(check_ids("prompt", request.prompt_ids, num_tokens));
  KIPP_TRY(check_ids("stop_token_ids", request.stop_token_ids, num_tokens));
  KIPP_TRY(validate(request.sampling, num_tokens));
  KIPP_TRY(validate_stop_strings(request.stop));
  if (request.num_choices < 1 || request.num_choices > kMaxChoices) {
    return invalid(fmt::format("n: expected 1 to {}, found {}", kMaxChoices, request.num_choices));
  }
  if (request.max_tokens == 0) return invalid("max_tokens: expected 1 or more, found 0");
  if (request.min_tokens < 0) {
    return invalid(fmt::format("min_tokens: expected 0 or more, found {}", request.min_tokens));
  }
  if (request.num_logprobs < -1 || request.num_logprobs > kMaxLogprobs) {
    return invalid(fmt::format("logprobs: expected 0 to {}, found {}", kMaxLogprobs, request.num_logprobs));
  }
  const auto num_prompt = static_cast<int32_t>(request.prompt_ids.size());
  if (num_prompt >= model_.limits.context) {
    return make_error(ErrorCode::kCapacity,
                      fmt::format("the prompt has {} tokens, the context holds {} with at least one of the answer: "
                                  "shorten it by {}",
                                  num_prompt, model_.limits.context, num_prompt - model_.limits.context + 1));
  }
  const int32_t blocks = blocks_for(num_prompt + room_for(request));
  if (blocks > model_.pool.num_blocks()) {
    return make_error(ErrorCode::kCapacity,
                      fmt::format("{} tokens of the prompt and {} of the answer need {} KV blocks, the pool has {}",
                                  num_prompt, room_for(request), blocks, model_.pool.num_blocks()));
  }
  // If a token is left without the stop tokens, one is left with them.
  const SamplingParams early =
      request.min_tokens > 0 ? without(request.sampling, request.stop_token_ids) : SamplingParams();
  const SamplingParams& strictest = request.min_tokens > 0 ? early : request.sampling;
  if (!leaves_a_token({.params = &strictest, .seed = request.seed}, num_tokens)) return nothing_to_sample();
  return {};
}

// New tokens of each choice.
int32_t BatchEngine::room_for(const BatchRequest& request) const {
  const auto num_prompt = static_cast<int32_t>(request.prompt_ids.size());
  const int32_t room = model_.limits.context - num_prompt;
  if (request.max_tokens >= 0) return std::min(room, request.max_tokens);
  const int64_t in_pool = int64_t{model_.pool.num_blocks()} * kBlockPositions - num_prompt;
  return static_cast<int32_t>(std::clamp<int64_t>(in_pool, 1, room));
}

Result<void> BatchEngine::add(uint64_t id, BatchRequest request, std::shared_ptr<BatchSink> sink) {
  KIPP_TRY(check(request));
  return add_checked(id, std::move(request), std::move(sink));
}

Result<void> BatchEngine::add_checked(uint64_t id, BatchRequest request, std::shared_ptr<BatchSink> sink) {
  sort_bias(request.sampling);
  auto state = std::make_unique<Request>(Request{.asked = std::move(request), .early = {}, .sink = std::move(sink)});
  const BatchRequest& asked = state->asked;
  if (asked.min_tokens > 0) state->early = without(asked.sampling, asked.stop_token_ids);
  const int32_t num_new = room_for(asked);
  state->context_limits = asked.max_tokens != num_new;
  state->has_history = depends_on_history(asked.sampling);
  KIPP_TRY(scheduler_->add({.id = id,
                            .prompt_ids = asked.prompt_ids,
                            .max_new_tokens = num_new,
                            .num_choices = asked.num_choices,
                            .priority = asked.priority,
                            .cache_salt = asked.cache_salt,
                            .prompt_logits = asked.prompt_logprobs}));
  for (int32_t c = 0; c < asked.num_choices; ++c) {
    state->choices.push_back({.decoder = StreamDecoder(model_.tokenizer, asked.skip_special_tokens),
                              .stop = StopMatcher(asked.stop),
                              .ids = {}});
  }
  num_with_history_ += state->has_history ? 1 : 0;
  requests_.emplace(id, std::move(state));
  return {};
}

void BatchEngine::cancel(uint64_t id) {
  Request* request = find(id);
  if (request == nullptr) return;
  static_cast<void>(scheduler_->cancel(id));  // an error: every choice has ended
  for (Choice& choice : request->choices) {
    if (!choice.ended) end(*request, choice, {.reason = FinishReason::kCancelled});
  }
  forget_ended();
}

void BatchEngine::cancel_all() {
  std::vector<uint64_t> ids;
  ids.reserve(requests_.size());
  for (const auto& [id, request] : requests_) ids.push_back(id);
  for (const uint64_t id : ids) cancel(id);
}

bool BatchEngine::advance() {
  const bool enqueued = may_enqueue() && enqueue();
  const size_t depth = options_.look_ahead ? 2 : 1;
  if (in_flight_.size() == depth || (!enqueued && !in_flight_.empty())) {
    collect();
    forget_ended();
    return true;
  }
  forget_ended();
  return enqueued;
}

// A step that is enqueued behind another cannot know what that one draws: penalties count it. Nor may it overwrite
// logits that are still to be read.
bool BatchEngine::may_enqueue() const {
  if (in_flight_.empty()) return true;
  return options_.look_ahead && in_flight_.size() < 2 && num_with_history_ == 0 && !in_flight_.back().reads_logits;
}

bool BatchEngine::enqueue() {
  std::optional<ScheduledStep> step = scheduler_->next_step();
  if (!step) return false;
  const auto started = start(*step);
  if (!started) {
    fail(*step, started.error());
    return true;
  }
  const bool reads = std::ranges::any_of(step->rows, [this](const ScheduledRow& row) {
    const Request* request = find(row.sequence.request);
    return request != nullptr && request->asked.prompt_logprobs &&
           row.position <= static_cast<int32_t>(request->asked.prompt_ids.size());
  });
  in_flight_.push_back({.step = *std::move(step), .id = *started, .reads_logits = reads});
  return true;
}

Result<StepId> BatchEngine::start(const ScheduledStep& step) {
  Backend& backend = *model_.backend;
  if (!step.copy_from.empty()) KIPP_TRY(backend.copy_blocks(step.copy_from, step.copy_to));
  std::vector<Span> spans;
  spans.reserve(step.spans.size());
  for (const ScheduledSpan& span : step.spans) {
    spans.push_back({.slot = span.slot,
                     .first_position = span.first_position,
                     .num_tokens = span.num_tokens,
                     .row_class = span.generated ? RowClass::kGenerated : RowClass::kPrompt,
                     .block_table = span.block_table});
  }
  std::vector<TokenRef> tokens;
  tokens.reserve(step.tokens.size());
  for (const ScheduledToken& token : step.tokens) tokens.push_back({.token = token.token, .from_row = token.from_row});
  KIPP_ASSIGN(const StepId id, backend.forward({.spans = spans, .tokens = tokens, .head_rows = step.head_rows}));
  if (step.rows.empty()) return id;
  std::vector<SampleRow> rows;
  rows.reserve(step.rows.size());
  for (const ScheduledRow& row : step.rows) rows.push_back(sample_row(row));
  if (auto sampled = backend.sample(id, rows); !sampled) {
    std::vector<RowResult> nothing;
    static_cast<void>(backend.collect(id, nothing));
    return tl::unexpected<Error>(sampled.error());
  }
  return id;
}

SampleRow BatchEngine::sample_row(const ScheduledRow& row) const {
  static const SamplingParams kGreedy = {.temperature = 0.0F};
  SampleRow draw{.params = &kGreedy, .position = row.position};
  const Request* request = find(row.sequence.request);
  if (request == nullptr || !row.is_sampled) return draw;
  const BatchRequest& asked = request->asked;
  const int32_t index = row.position - static_cast<int32_t>(asked.prompt_ids.size());
  draw.params = index < asked.min_tokens ? &request->early : &asked.sampling;
  draw.seed = asked.seed;
  draw.choice = row.sequence.choice;
  draw.num_logprobs = asked.num_logprobs;
  if (request->has_history) {
    draw.prompt_ids = asked.prompt_ids;
    draw.output_ids = request->choices[static_cast<size_t>(row.sequence.choice)].ids;
  }
  return draw;
}

void BatchEngine::collect() {
  const InFlight step = std::move(in_flight_.front());
  in_flight_.pop_front();
  std::vector<RowResult> results(step.step.rows.size());
  auto collected = model_.backend->collect(step.id, results);
  if (collected && step.reads_logits) collected = read_prompt_logprobs(step);
  if (!collected) {
    fail(step.step, collected.error());
    return;
  }
  std::vector<int32_t> sampled;
  sampled.reserve(results.size());
  for (const RowResult& result : results) sampled.push_back(result.finite ? result.token.id : -1);
  const auto tokens = scheduler_->complete(step.step.id, sampled);
  if (!tokens) {
    fail(step.step, tokens.error());
    return;
  }
  for (const NewToken& token : *tokens) take(token, results[static_cast<size_t>(token.row)].token);
}

// Of the rows that predict a token of a prompt. Errors: those of the backend.
Result<void> BatchEngine::read_prompt_logprobs(const InFlight& step) {
  std::vector<float> logits(static_cast<size_t>(model_.file.info().dimensions.vocab));
  for (size_t r = 0; r < step.step.rows.size(); ++r) {
    const ScheduledRow& row = step.step.rows[r];
    const Request* request = find(row.sequence.request);
    if (request == nullptr || !request->asked.prompt_logprobs || row.sequence.choice != 0) continue;
    if (static_cast<size_t>(row.position) > request->asked.prompt_ids.size()) continue;
    KIPP_TRY(read_prompt_logprob(step, r, logits));
  }
  return {};
}

Result<void> BatchEngine::read_prompt_logprob(const InFlight& step, size_t row, std::vector<float>& logits) {
  const ScheduledRow& scheduled = step.step.rows[row];
  Request& request = *find(scheduled.sequence.request);
  const std::vector<int32_t>& prompt = request.asked.prompt_ids;
  const auto position = static_cast<size_t>(scheduled.position);
  if (position < prompt.size()) {
    const int32_t num_tokens = model_.tokenizer.num_tokens();
    KIPP_TRY(model_.backend->logits(step.id, static_cast<int32_t>(row), logits));
    if (const auto finite = check_finite(logits, num_tokens); !finite) {
      fail(scheduled.sequence.request, finite.error());  // the other requests of the step are not concerned
      return {};
    }
    const LogSoftmax log_softmax = kipp::log_softmax(logits, num_tokens);
    const int32_t count = std::max(0, request.asked.num_logprobs);
    request.prompt_logprobs.push_back({.id = prompt[position],
                                       .logprob = log_softmax(logits[static_cast<size_t>(prompt[position])]),
                                       .top_logprobs = best_logprobs(logits, num_tokens, count, log_softmax)});
  } else if (request.prompt_logprobs.size() + 1 == prompt.size()) {
    request.sink->on_prompt_logprobs(request.prompt_logprobs);
  }
  return {};
}

void BatchEngine::take(const NewToken& token, const SampledToken& sampled) {
  Request* request = find(token.sequence.request);
  if (request == nullptr) return;
  Choice& choice = request->choices[static_cast<size_t>(token.sequence.choice)];
  if (choice.ended) return;
  const BatchRequest& asked = request->asked;
  BatchEnd end{.choice = token.sequence.choice};
  if (token.ended == EndReason::kFailed) {
    end.error = Error{ErrorCode::kNumerical, "a logit is not finite"};
    this->end(*request, choice, std::move(end));
    return;
  }
  const bool stops = std::ranges::find(asked.stop_token_ids, token.token) != asked.stop_token_ids.end();
  if (stops) {
    end.reason = FinishReason::kStop;
    end.stop_token = token.token;
  } else {
    choice.ids.push_back(token.token);
    std::string text = choice.decoder.push(token.token).value_or(std::string());
    if (static_cast<int32_t>(choice.ids.size()) > asked.min_tokens) text = choice.stop.push(text);
    const bool goes_on = request->sink->on_token({.choice = token.sequence.choice, .token = sampled, .text = text}) &&
                         !choice.stop.matched();
    if (goes_on && !token.ended) return;
    if (!goes_on) end.reason = FinishReason::kStop;
    end.context_full = goes_on && request->context_limits;
  }
  if (!token.ended) static_cast<void>(scheduler_->finish(token.sequence, EndReason::kStop));
  this->end(*request, choice, std::move(end));
}

// What decoder and matcher still hold goes with the end.
void BatchEngine::end(Request& request, Choice& choice, BatchEnd end) {
  choice.ended = true;
  end.choice = static_cast<int32_t>(&choice - request.choices.data());
  end.last_text = choice.stop.push(choice.decoder.finish());
  if (choice.stop.matched() && !end.error && end.reason != FinishReason::kCancelled) {
    end.reason = FinishReason::kStop;
    end.stop_string = request.asked.stop[*choice.stop.matched()];
    end.context_full = false;
  }
  end.last_text += choice.stop.finish();
  request.sink->on_end(end);
}

// A step that failed as a whole ends every sequence that it has rows of.
void BatchEngine::fail(const ScheduledStep& step, const Error& error) {
  static_cast<void>(scheduler_->fail(step.id));
  for (const ScheduledSpan& span : step.spans) {
    Request* request = find(span.sequence.request);
    if (request == nullptr) continue;
    Choice& choice = request->choices[static_cast<size_t>(span.sequence.choice)];
    if (!choice.ended) end(*request, choice, {.error = error});
  }
}

// What is left of one request.
void BatchEngine::fail(uint64_t id, const Error& error) {
  Request* request = find(id);
  if (request == nullptr) return;
  static_cast<void>(scheduler_->cancel(id));
  for (Choice& choice : request->choices) {
    if (!choice.ended) end(*request, choice, {.error = error});
  }
}

void BatchEngine::forget_ended() {
  for (const RequestInfo& info : scheduler_->take_ended()) {
    const auto found = requests_.find(info.id);
    if (found == requests_.end()) continue;
    num_with_history_ -= found->second->has_history ? 1 : 0;
    const std::shared_ptr<BatchSink> sink = std::move(found->second->sink);
    requests_.erase(found);
    sink->on_finished(info);
  }
}

BatchEngine::Request* BatchEngine::find(uint64_t id) const {
  const auto found = requests_.find(id);
  return found == requests_.end() ? nullptr : found->second.get();
}

}  // namespace kipp
