// A chat over several turns on one session: each turn evaluates only what the session does not hold yet.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "engine/generate.h"
#include "kipp/chat.h"
#include "kipp/chat_output.h"
#include "kipp/engine.h"
#include "kipp/error.h"

namespace kipp::cli {

// What one question brought.
struct Turn {
  GenerateResult result;
  size_t prompt_tokens = 0;  // of the whole chat so far
  size_t reused_tokens = 0;  // of those, already held by the session
};

class Conversation {
 public:
  // opening: system message, tools and thinking; it stays when the chat is reset. The model must outlive the chat.
  Conversation(Model& model, Session session, ChatRequest opening);

  struct Events {
    std::function<Result<void>(const OutputEvent& event)> on_output;     // parts of the answer as they come
    std::function<bool(size_t evaluated, size_t total)> on_prompt = {};  // before each piece of the prompt
    std::function<bool()> goes_on = {};                                  // after each token; false ends the answer
  };
  // Adds message and the answer to it. An answer that was ended early is kept as far as it came. Errors, and an end
  // before the first token, leave the chat as it was: kUnsupported (a base checkpoint), kCapacity (the chat does not
  // fit), those of generate() and of the events.
  Result<Turn> ask(ChatMessage message, const GenerateOptions& options, const Events& events);

  // Takes back the last question or tool result with its answer; returns the message, or nothing if there is none.
  std::optional<ChatMessage> undo();
  void reset();
  // Resets, and opens with this system prompt; none if it is empty.
  void set_system(const std::string& text);

  const ChatRequest& request() const { return request_; }

 private:
  Result<Turn> answer(const GenerateOptions& options, const Events& events, ChatMessage& reply);

  Model& model_;
  Session session_;
  ChatRequest request_;
  size_t num_opening_;  // messages before the first question
};

}  // namespace kipp::cli
