// How an answer looks: reasoning dimmed, tool calls marked, content as it is.
#pragma once

#include <optional>

#include "cli/output.h"
#include "kipp/chat_output.h"
#include "kipp/error.h"

namespace kipp::cli {

class ChatView {
 public:
  // Without colours reasoning stands between <think> and </think>.
  ChatView(Output& output, bool colours) : output_(output), colours_(colours) {}

  // Errors: those of Output::write.
  Result<void> show(const OutputEvent& event);
  // Ends the answer with a line feed; the next show() begins a new one.
  Result<void> end();

 private:
  Result<void> enter(OutputEvent::Kind kind);
  Result<void> leave_reasoning(bool more);

  Output& output_;
  bool colours_;
  std::optional<OutputEvent::Kind> last_;
};

}  // namespace kipp::cli
