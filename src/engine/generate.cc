// The loop itself. Text goes decoder -> stop matcher -> callback; either may hold some back.
#include "engine/generate.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "backend/backend.h"
#include "engine/stop_matcher.h"
#include "gguf/model_file.h"

namespace kipp {
namespace {

class Stopwatch {
 public:
  double lap() {
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - start_).count();
    start_ = now;
    return seconds;
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

Result<void> check_room(const Model& model, const Session& session, size_t num_prompt) {
  if (num_prompt == 0 && session.logits().empty()) {
    return make_error(ErrorCode::kInvalidArgument, "the prompt is empty: there is nothing to predict from");
  }
  const auto room = static_cast<size_t>(model.context() - session.length());
  if (num_prompt <= room) {
    return {};
  }
  const std::string held = session.length() > 0 ? fmt::format(" after {} already held", session.length()) : "";
  const char* larger = model.context() < model.info().dimensions.context ? " or use a larger context" : "";
  return make_error(ErrorCode::kCapacity,
                    fmt::format("the prompt has {} tokens{}, the context holds {}: shorten it by {}{}", num_prompt,
                                held, model.context(), num_prompt - room, larger));
}

bool goes_on(const GenerateCallback& callback, const GenerateStep* step) {
  return !callback || callback(step);
}

// In pieces, so that the caller can end a long prompt soon; the result does not depend on them. Returns false if the
// callback ended the generation.
Result<bool> evaluate_prompt(size_t piece, Session& session, std::span<const int32_t> prompt,
                             const GenerateCallback& callback) {
  while (!prompt.empty()) {
    if (!goes_on(callback, nullptr)) {
      return false;
    }
    const size_t count = std::min(prompt.size(), piece);
    KIPP_TRY(session.append(prompt.first(count)));
    prompt = prompt.subspan(count);
  }
  return true;
}

class Generation {
 public:
  Generation(Model& model, Session& session, const GenerateOptions& options, const GenerateCallback& callback)
      : session_(session),
        options_(options),
        callback_(callback),
        decoder_(model.tokenizer(), options.skip_special_tokens),
        stop_(options.stop),
        prompt_(session.tokens().begin(), session.tokens().end()) {
    const int32_t room = model.context() - session.length();
    context_limits_ = options.max_tokens < 0 || options.max_tokens > room;
    max_tokens_ = static_cast<size_t>(context_limits_ ? room : options.max_tokens);
  }

  Result<void> run(GenerateResult& result) {
    while (result.ids.size() < max_tokens_) {
      KIPP_ASSIGN(const SampledToken token, session_.sample(request(result.ids)));
      if (std::ranges::find(options_.stop_token_ids, token.id) != options_.stop_token_ids.end()) {
        result.finish_reason = FinishReason::kStop;
        result.stop_token = token.id;
        return {};
      }
      KIPP_ASSIGN(const std::string decoded, decoder_.push(token.id));
      const std::string text = stop_.push(decoded);
      result.ids.push_back(token.id);
      result.text += text;
      const GenerateStep step{.token = token, .text = text};
      if (!goes_on(callback_, &step)) {
        result.finish_reason = FinishReason::kCancelled;
        return {};
      }
      if (note_stop_string(result)) {
        return {};
      }
      if (result.ids.size() < max_tokens_) {
        KIPP_TRY(session_.append(std::span(&token.id, 1), true));
        ++result.timings.decode_steps;
      }
    }
    result.finish_reason = FinishReason::kLength;
    result.context_full = context_limits_;
    return {};
  }

  // What decoder and matcher still held.
  void finish_text(GenerateResult& result) {
    result.last_text = stop_.push(decoder_.finish());
    note_stop_string(result);
    result.last_text += stop_.finish();
    result.text += result.last_text;
  }

 private:
  bool note_stop_string(GenerateResult& result) const {
    if (!stop_.matched()) {
      return false;
    }
    result.finish_reason = FinishReason::kStop;
    result.stop_string = options_.stop[*stop_.matched()];
    return true;
  }

  SampleRequest request(const std::vector<int32_t>& output) const {
    return {.params = &options_.sampling,
            .seed = options_.seed,
            .choice = options_.choice,
            .num_logprobs = options_.num_logprobs,
            .prompt_ids = prompt_,
            .output_ids = output};
  }

  Session& session_;
  const GenerateOptions& options_;
  const GenerateCallback& callback_;
  StreamDecoder decoder_;
  StopMatcher stop_;
  std::vector<int32_t> prompt_;  // everything before the output, for repetition_penalty
  size_t max_tokens_ = 0;
  bool context_limits_ = false;
};

}  // namespace

const char* finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kCancelled: return "cancelled";
  }
  return "";
}

Result<GenerateResult> generate(Model& model, Session& session, std::span<const int32_t> prompt,
                                const GenerateOptions& options, const GenerateCallback& callback) {
  KIPP_TRY(validate(options.sampling, model.tokenizer().num_tokens()));
  KIPP_TRY(validate_stop_strings(options.stop));
  KIPP_TRY(check_room(model, session, prompt.size()));
  GenerateResult result;
  Stopwatch stopwatch;
  const int32_t held = session.length();
  const auto piece = static_cast<size_t>(model.backend().preferred_tokens_per_step());
  KIPP_ASSIGN(const bool prompt_done, evaluate_prompt(piece, session, prompt, callback));
  result.timings.prompt_tokens = session.length() - held;
  result.timings.prefill_seconds = stopwatch.lap();
  if (!prompt_done) {
    result.finish_reason = FinishReason::kCancelled;
    return result;
  }
  Generation generation(model, session, options, callback);
  KIPP_TRY(generation.run(result));
  generation.finish_text(result);
  result.timings.decode_seconds = stopwatch.lap();
  return result;
}

}  // namespace kipp
