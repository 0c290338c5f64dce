// One state: what was shown last.
#include "cli/chat_view.h"

#include <string>

#include <fmt/format.h>

#include "cli/terminal.h"

namespace kipp::cli {

using Kind = OutputEvent::Kind;

Result<void> ChatView::leave_reasoning(bool more) {
  if (last_ != Kind::kReasoning) {
    return {};
  }
  return output_.write(fmt::format("{}{}", colours_ ? kReset : "\n</think>", more ? "\n\n" : ""));
}

Result<void> ChatView::enter(Kind kind) {
  if (last_ == kind) {
    return {};
  }
  KIPP_TRY(leave_reasoning(true));
  if (kind == Kind::kReasoning) {
    KIPP_TRY(output_.write(colours_ ? kDim : "<think>\n"));
  } else if (kind == Kind::kToolCallBegin || last_ == Kind::kToolCallEnd) {
    KIPP_TRY(output_.write(last_ && last_ != Kind::kReasoning ? "\n" : ""));
  }
  last_ = kind;
  return {};
}

Result<void> ChatView::show(const OutputEvent& event) {
  KIPP_TRY(enter(event.kind));
  const std::string text = is_terminal_ ? escape_controls(event.text) : event.text;
  switch (event.kind) {
    case Kind::kReasoning:
    case Kind::kContent:
    case Kind::kToolCallArguments: return output_.write(text);
    case Kind::kToolCallBegin: return output_.write(fmt::format("{}[tool call] {} ", colours_ ? kCyan : "", text));
    case Kind::kToolCallEnd:
      return output_.write(fmt::format("{}{}", colours_ ? kReset : "", event.complete ? "" : " (cut off)"));
  }
  return {};
}

Result<void> ChatView::end() {
  KIPP_TRY(leave_reasoning(false));
  if (colours_ && (last_ == Kind::kToolCallBegin || last_ == Kind::kToolCallArguments)) {
    KIPP_TRY(output_.write(kReset));  // an error came inside the call
  }
  last_.reset();
  return output_.write("\n");
}

}  // namespace kipp::cli
