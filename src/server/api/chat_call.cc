// See chat_call.h. Tokens become events once their text may be shown: with stop strings that is later than they come.
#include "server/api/chat_call.h"

#include <deque>
#include <utility>

#include "kipp/chat_output.h"

namespace kipp::api {
namespace {

constexpr std::string_view kThink = "<think>";
constexpr std::string_view kEndOfThink = "</think>";

// The tokens of one choice, as events. What a stop string leaves of a token is text.
class ShownTokens {
 public:
  ShownTokens(const Tokenizer& tokenizer, OutputParserOptions options)
      : decoder_(tokenizer), parser_(tokenizer, options) {}

  // text: what may be shown since the last call.
  std::vector<OutputEvent> push(int32_t id, std::string_view text) {
    num_decoded_ += decoder_.push(id).value_or(std::string()).size();
    waiting_.push_back({id, num_decoded_});
    return show(text);
  }

  // The end: text that was held back, and with a stop string a part of a token.
  std::vector<OutputEvent> finish(std::string_view last_text) {
    std::vector<OutputEvent> events = show(last_text);
    if (num_shown_ > num_released_) {
      const int32_t cut = waiting_.empty() ? -1 : waiting_.front().id;
      append(events, parser_.push_text(tail_, cut));
    }
    append(events, parser_.finish());
    return events;
  }

 private:
  struct Waiting {
    int32_t id;
    size_t end;  // bytes of text up to and with this token
  };

  static void append(std::vector<OutputEvent>& to, std::vector<OutputEvent> events) {
    for (OutputEvent& event : events) to.push_back(std::move(event));
  }

  std::vector<OutputEvent> show(std::string_view text) {
    tail_ += text;
    num_shown_ += text.size();
    std::vector<OutputEvent> events;
    while (!waiting_.empty() && waiting_.front().end <= num_shown_) {
      append(events, parser_.push(waiting_.front().id).value_or(std::vector<OutputEvent>()));
      num_released_ = waiting_.front().end;
      waiting_.pop_front();
    }
    tail_.erase(0, tail_.size() - (num_shown_ - num_released_));
    return events;
  }

  StreamDecoder decoder_;
  OutputParser parser_;
  std::deque<Waiting> waiting_;
  size_t num_decoded_ = 0;   // bytes
  size_t num_shown_ = 0;     // of these, what may be shown
  size_t num_released_ = 0;  // of these, what whole tokens that the parser has make up
  std::string tail_;         // shown, but not released
};

class ChatCall final : public Call {
 public:
  ChatCall(CallContext context, const openai::ChatCompletionRequest& request, const std::vector<int32_t>& prompt_ids)
      : Call(std::move(context), request.generation, true, {static_cast<int32_t>(prompt_ids.size())}),
        think_(this->context().tokenizer.token_to_id(kThink)),
        end_of_think_(this->context().tokenizer.token_to_id(kEndOfThink)),
        one_call_(request.tool_calls && !request.parallel_tool_calls) {
    const Tokenizer& tokenizer = this->context().tokenizer;
    const bool in_reasoning = ends_in_reasoning(prompt_ids, tokenizer);
    const OutputParserOptions options{.in_reasoning = in_reasoning, .tool_calls = request.tool_calls};
    for (size_t i = 0; i < num_choices(); ++i) {
      choices_.push_back({.stream = openai::ChatStream(stream(), static_cast<int32_t>(i)),
                          .shown = ShownTokens(tokenizer, options),
                          .in_reasoning = in_reasoning});
    }
  }

 private:
  struct Choice {
    openai::ChatStream stream;
    ShownTokens shown;
    bool in_reasoning;
    ChatMessage message = {.role = Role::kAssistant};
    std::vector<openai::TokenLogprob> tokens = {};
  };

  void on_prompt(size_t, std::span<const SampledToken>) override {}

  bool on_token(size_t index, const BatchToken& token) override {
    Choice& choice = choices_[index];
    if (token.token.id == think_) choice.in_reasoning = true;
    if (choice.in_reasoning) ++usage().reasoning_tokens;
    if (token.token.id == end_of_think_) choice.in_reasoning = false;
    const std::vector<OutputEvent> events = choice.shown.push(token.token.id, token.text);
    add(choice, events, logprob_of(token.token));
    return !one_call_ || events.empty() || events.back().kind != OutputEvent::Kind::kToolCallEnd;
  }

  void on_end(size_t index, const BatchEnd& end) override {
    Choice& choice = choices_[index];
    add(choice, choice.shown.finish(end.last_text), {});
  }

  std::string finish_events(size_t index, openai::Finish finish, const openai::Timings* timings) override {
    return choices_[index].stream.finish(finish, usage(), timings);
  }

  Json whole_answer(const openai::Timings& timings) const override {
    std::vector<openai::ChatChoice> choices;
    for (const Choice& choice : choices_) {
      openai::ChatChoice whole{.message = choice.message, .logprobs = {}, .finish = finish_of(choices.size())};
      if (wants_logprobs()) whole.logprobs = choice.tokens;
      choices.push_back(std::move(whole));
    }
    return openai::chat_completion_json(context().identity, choices, usage(), &timings);
  }

  void add(Choice& choice, const std::vector<OutputEvent>& events, std::vector<openai::TokenLogprob> tokens) {
    if (streams()) {
      send(choice.stream.push(events, std::move(tokens), usage()));
      return;
    }
    for (const OutputEvent& event : events) append_event(event, choice.message);
    for (openai::TokenLogprob& token : tokens) choice.tokens.push_back(std::move(token));
  }

  int32_t think_;
  int32_t end_of_think_;
  bool one_call_;
  std::vector<Choice> choices_;
};

}  // namespace

std::shared_ptr<Call> make_chat_call(CallContext context, const openai::ChatCompletionRequest& request,
                                     const std::vector<int32_t>& prompt_ids) {
  return std::make_shared<ChatCall>(std::move(context), request, prompt_ids);
}

}  // namespace kipp::api
