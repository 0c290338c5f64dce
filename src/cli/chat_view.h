// How an answer looks: reasoning dimmed, tool calls marked, content as it is.
#pragma once

#include <optional>

#include "cli/output.h"
#include "kipp/chat_output.h"
#include "kipp/error.h"

namespace kipp::cli {

class ChatView {
 public:
  // Without colours reasoning stands between <think> and </think>. is_terminal: control characters are escaped;
  // anything else gets the bytes as they are.
  ChatView(Output& output, bool colours, bool is_terminal)
      : output_(output), colours_(colours), is_terminal_(is_terminal) {}

  // Errors: those of Output::write.
  Result<void> show(const OutputEvent& event);
  // Whether an answer was begun and not ended.
  bool shows_answer() const { return last_.has_value(); }
  // Ends the answer with a line feed and without colours; the next show() begins a new one.
  Result<void> end();

 private:
  Result<void> enter(OutputEvent::Kind kind);
  Result<void> leave_reasoning(bool more);

  Output& output_;
  bool colours_;
  bool is_terminal_;
  std::optional<OutputEvent::Kind> last_;
};

}  // namespace kipp::cli
