// See completion_call.h. With echo, a choice's text and tokens begin with the prompt's.
#include "server/api/completion_call.h"

#include <utility>

namespace kipp::api {
namespace {

class CompletionCall final : public Call {
 public:
  CompletionCall(CallContext context, const openai::CompletionRequest& request, std::vector<CompletionPrompt> prompts)
      : Call(std::move(context), request.generation, false, sizes(prompts)),
        echo_(request.echo),
        prompts_(std::move(prompts)),
        prompt_tokens_(num_choices()) {
    for (size_t i = 0; i < num_choices(); ++i) {
      choices_.push_back({.stream = openai::CompletionStream(stream(), static_cast<int32_t>(i))});
    }
  }

 private:
  struct Choice {
    openai::CompletionStream stream;
    std::string text = {};
    std::vector<openai::TokenLogprob> tokens = {};
    bool begun = false;
  };

  static std::vector<int32_t> sizes(const std::vector<CompletionPrompt>& prompts) {
    std::vector<int32_t> sizes;
    sizes.reserve(prompts.size());
    for (const CompletionPrompt& prompt : prompts) sizes.push_back(static_cast<int32_t>(prompt.ids.size()));
    return sizes;
  }

  void on_prompt(size_t prompt, std::span<const SampledToken> logprobs) override {
    std::vector<openai::TokenLogprob> tokens = logprob_of({.id = prompts_[prompt].ids.front()});
    for (openai::TokenLogprob& first : tokens) first.logprob.reset();  // nothing predicts it
    for (const SampledToken& token : logprobs) {
      for (openai::TokenLogprob& logprob : logprob_of(token)) tokens.push_back(std::move(logprob));
    }
    const auto n = static_cast<size_t>(generation().n);
    for (size_t i = prompt * n; i < (prompt + 1) * n; ++i) prompt_tokens_[i] = tokens;
  }

  bool on_token(size_t index, const BatchToken& token) override {
    begin(index);
    add(index, token.text, logprob_of(token.token));
    return true;
  }

  void on_end(size_t index, const BatchEnd& end) override {
    begin(index);
    add(index, end.last_text, {});
  }

  std::string finish_events(size_t index, openai::Finish finish, const openai::Timings* timings) override {
    return choices_[index].stream.finish(finish, usage(), timings);
  }

  Json whole_answer(const openai::Timings& timings) const override {
    std::vector<openai::CompletionChoice> choices;
    for (const Choice& choice : choices_) {
      openai::CompletionChoice whole{.text = choice.text, .logprobs = {}, .finish = finish_of(choices.size())};
      if (wants_logprobs()) whole.logprobs = choice.tokens;
      choices.push_back(std::move(whole));
    }
    return openai::completion_json(context().identity, choices, usage(), &timings);
  }

  void begin(size_t index) {
    if (std::exchange(choices_[index].begun, true) || !echo_) return;
    add(index, prompts_[prompt_of(index)].text, std::move(prompt_tokens_[index]));
  }

  void add(size_t index, std::string_view text, std::vector<openai::TokenLogprob> tokens) {
    Choice& choice = choices_[index];
    if (streams()) {
      send(choice.stream.push(text, std::move(tokens), usage()));
      return;
    }
    choice.text += text;
    for (openai::TokenLogprob& token : tokens) choice.tokens.push_back(std::move(token));
  }

  bool echo_;
  std::vector<CompletionPrompt> prompts_;
  std::vector<std::vector<openai::TokenLogprob>> prompt_tokens_;  // [choices] empty without echo or log-probabilities
  std::vector<Choice> choices_;
};

}  // namespace

std::shared_ptr<Call> make_completion_call(CallContext context, const openai::CompletionRequest& request,
                                           std::vector<CompletionPrompt> prompts) {
  return std::make_shared<CompletionCall>(std::move(context), request, std::move(prompts));
}

}  // namespace kipp::api
