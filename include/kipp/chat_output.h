// What an assistant's tokens mean: reasoning, content and tool calls, as a stream of events and as a message.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kipp/chat.h"
#include "kipp/error.h"
#include "kipp/tokenizer.h"

namespace kipp {

struct OutputEvent {
  enum class Kind : uint8_t {
    kReasoning,          // text between <think> and </think>
    kContent,            // text of the answer
    kToolCallBegin,      // text is the function's name
    kToolCallArguments,  // text is a piece of the arguments' JSON text; the pieces joined are the whole
    kToolCallEnd,
  };
  Kind kind = Kind::kContent;
  std::string text = {};
  int32_t call_idx = -1;  // the tool call's, from 0
  bool complete = true;   // kToolCallEnd: false if generation ended inside the call or its JSON is broken
};

struct OutputParserOptions {
  bool in_reasoning = false;  // the prompt ends inside <think>: ends_in_reasoning()
  bool tool_calls = true;     // false: what looks like a call is content
};

// Tokens one by one to events. Structure is told by the ids of <think>, </think>, <tool_call> and </tool_call> alone:
// the same letters spelled by other tokens are text, also inside a call's arguments.
//
// Line feeds that only the format puts there are no text: those after <think>, before </think>, after </think>, before
// <tool_call> and after </tool_call>. What cannot be read as a call before its name is known is content, letter for
// letter; after that the call ends as not complete. <think> counts only before any content.
class OutputParser {
 public:
  // The tokenizer must outlive the parser.
  OutputParser(const Tokenizer& tokenizer, OutputParserOptions options);
  ~OutputParser();
  OutputParser(OutputParser&&) noexcept;
  OutputParser& operator=(OutputParser&&) noexcept;

  // Stop tokens are not pushed. Errors: kInvalidArgument (a negative id).
  Result<std::vector<OutputEvent>> push(int32_t id);
  // Text that is no whole token, as what a stop string leaves of one: never structure. It stands for all that is not
  // shown yet: bytes of a character that pushed tokens began are dropped. id: the token that it is a part of, or -1; a
  // part of a tag that would be structure is no text either, and dropped.
  std::vector<OutputEvent> push_text(std::string_view text, int32_t id = -1);
  // The end of the generation: what was held back, and the end of a call that was cut.
  std::vector<OutputEvent> finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// True if the last <think> of a prompt is not closed, as after the generation prompt of thinking-2507.
bool ends_in_reasoning(std::span<const int32_t> prompt, const Tokenizer& tokenizer);

// The message of a finished generation. text: what was shown of it, control tokens left out; where a stop string cut it
// short, tokens count only as far as it goes. Errors: those of push().
Result<ChatMessage> parse_output(std::span<const int32_t> ids, std::string_view text, const Tokenizer& tokenizer,
                                 OutputParserOptions options);

// Adds an event to the assistant's message that it belongs to. A call's arguments are kept as text.
void append_event(const OutputEvent& event, ChatMessage& message);

}  // namespace kipp
