// Renders the whole chat each time and keeps the part that the session holds already: the template may take old
// reasoning out again, and whatever else it changes is found by comparing tokens.
#include "cli/conversation.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "gguf/model_file.h"

namespace kipp::cli {

Conversation::Conversation(Model& model, Session session, ChatRequest opening)
    : model_(model),
      session_(std::move(session)),
      request_(std::move(opening)),
      num_opening_(request_.messages.size()) {}

Result<Turn> Conversation::ask(ChatMessage message, const GenerateOptions& options, const Events& events) {
  const size_t before = request_.messages.size();
  request_.messages.push_back(std::move(message));
  ChatMessage reply;
  reply.role = Role::kAssistant;
  Result<Turn> turn = answer(options, events, reply);
  if (!turn || (turn->result.finish_reason == FinishReason::kCancelled && turn->result.ids.empty())) {
    request_.messages.resize(before);
    return turn;
  }
  request_.messages.push_back(std::move(reply));
  return turn;
}

Result<Turn> Conversation::answer(const GenerateOptions& options, const Events& events, ChatMessage& reply) {
  const Tokenizer& tokenizer = model_.tokenizer();
  KIPP_ASSIGN(const RenderedPrompt rendered, render_chat(request_, model_.info().checkpoint->variant, tokenizer));
  const std::span<const int32_t> prompt = rendered.ids;
  const std::span<const int32_t> held = session_.tokens();
  const auto common = static_cast<size_t>(std::ranges::mismatch(prompt, held).in1 - prompt.begin());
  Turn turn;
  turn.prompt_tokens = prompt.size();
  turn.reused_tokens = std::min(common, prompt.size() - 1);  // the last token's logits are needed anew
  KIPP_TRY(session_.truncate(static_cast<int32_t>(turn.reused_tokens)));
  OutputParser parser(tokenizer, {.in_reasoning = ends_in_reasoning(prompt, tokenizer)});
  Result<void> shown;
  const auto show = [&](const std::vector<OutputEvent>& outputs) {
    for (const OutputEvent& event : outputs) {
      append_event(event, reply);
      if (shown && events.on_output) {
        shown = events.on_output(event);
      }
    }
  };
  const auto on_step = [&](const GenerateStep* step) {
    if (step == nullptr) {
      return !events.on_prompt || events.on_prompt(static_cast<size_t>(session_.length()), prompt.size());
    }
    Result<std::vector<OutputEvent>> outputs = parser.push(step->token.id);
    if (outputs) {
      show(*outputs);
    } else {
      shown = tl::unexpected<Error>(outputs.error());
    }
    return shown.has_value() && (!events.goes_on || events.goes_on());
  };
  KIPP_ASSIGN(turn.result, generate(model_, session_, prompt.subspan(turn.reused_tokens), options, on_step));
  show(parser.finish());
  KIPP_TRY(shown);
  return turn;
}

std::optional<ChatMessage> Conversation::undo() {
  std::vector<ChatMessage>& messages = request_.messages;
  while (messages.size() > num_opening_) {
    ChatMessage last = std::move(messages.back());
    messages.pop_back();
    if (last.role != Role::kAssistant) {
      return last;
    }
  }
  return std::nullopt;
}

void Conversation::reset() {
  request_.messages.resize(num_opening_);
}

void Conversation::set_system(const std::string& text) {
  request_.messages.clear();
  if (!text.empty()) {
    ChatMessage system;
    system.role = Role::kSystem;
    system.content = text;
    request_.messages.push_back(std::move(system));
  }
  num_opening_ = request_.messages.size();
}

}  // namespace kipp::cli
