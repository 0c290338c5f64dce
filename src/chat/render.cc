// The Qwen3 chat templates as code, one function per part of the Jinja text. Python's strip("\n") strips LF only, and
// the conditions mirror the template's, its oddities included: the golden cases are byte for byte.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "chat/format_tokens.h"
#include "chat/prompt.h"
#include "kipp_checkpoints.h"
#include "tokenizer/utf8.h"

namespace kipp {
namespace chat {
namespace {

std::string_view strip_leading_lf(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of('\n'), text.size()));
}

std::string_view strip_trailing_lf(std::string_view text) {
  return text.substr(0, text.find_last_not_of('\n') + 1);
}

std::string_view after_last(std::string_view text, std::string_view separator) {
  const size_t at = text.rfind(separator);
  return at == std::string_view::npos ? text : text.substr(at + separator.size());
}

std::string_view text_of(const ChatMessage& message) {
  return message.content ? std::string_view(*message.content) : std::string_view();
}

// What the template says of an assistant's message: reasoning given apart or taken out of the content.
struct Answer {
  std::string_view reasoning;
  std::string_view content;
};

Answer split_answer(const ChatMessage& message) {
  const std::string_view content = text_of(message);
  if (message.reasoning_content) {
    return {*message.reasoning_content, content};
  }
  const size_t first_end = content.find(kThinkEnd);
  if (first_end == std::string_view::npos) {
    return {{}, content};
  }
  const std::string_view before = strip_trailing_lf(content.substr(0, first_end));
  return {strip_leading_lf(after_last(before, kThinkBegin)), strip_leading_lf(after_last(content, kThinkEnd))};
}

// The last user message that is not a tool's result in disguise: reasoning after it is still of use, before it is not.
size_t last_query_index(const std::vector<ChatMessage>& messages) {
  for (size_t i = messages.size(); i-- > 0;) {
    const ChatMessage& message = messages[i];
    if (message.role == Role::kUser && message.content &&
        !(message.content->starts_with(kResponseBegin) && message.content->ends_with(kResponseEnd))) {
      return i;
    }
  }
  return messages.size() - 1;
}

std::string_view turn_name(Role role) {
  switch (role) {
    case Role::kSystem: return "system";
    case Role::kUser: return "user";
    case Role::kAssistant: return "assistant";
    case Role::kTool: return "user";  // tools speak in a user's turn
  }
  return "user";
}

class Renderer {
 public:
  Renderer(const ChatRequest& request, Variant variant)
      : messages_(request.messages),
        request_(request),
        keeps_reasoning_(variant != Variant::kInstruct2507),
        variant_(variant),
        last_query_(last_query_index(request.messages)) {}

  Result<Prompt> render() {
    KIPP_TRY(head());
    for (size_t i = 0; i < messages_.size(); ++i) {
      switch (messages_[i].role) {
        case Role::kSystem:
          if (i > 0) {  // the first one is part of the head
            plain_turn(messages_[i]);
          }
          break;
        case Role::kUser: plain_turn(messages_[i]); break;
        case Role::kAssistant: KIPP_TRY(assistant_turn(i)); break;
        case Role::kTool: tool_result(i); break;
      }
    }
    if (request_.add_generation_prompt) {
      generation_prompt();
    }
    return std::move(prompt_);
  }

 private:
  void begin_turn(Role role) { prompt_.control(kTurnBegin).text(turn_name(role)).text("\n"); }
  void end_turn() { prompt_.control(kTurnEnd).text("\n"); }

  void plain_turn(const ChatMessage& message) {
    begin_turn(message.role);
    prompt_.text(text_of(message));
    end_turn();
  }

  Result<void> head() {
    const ChatMessage& first = messages_.front();
    if (request_.tools.empty()) {
      if (first.role == Role::kSystem) {
        plain_turn(first);
      }
      return {};
    }
    begin_turn(Role::kSystem);
    if (first.role == Role::kSystem) {
      prompt_.text(text_of(first)).text("\n\n");
    }
    prompt_.text(
        "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
        "You are provided with function signatures within <tools></tools> XML tags:\n<tools>");
    for (size_t i = 0; i < request_.tools.size(); ++i) {
      KIPP_ASSIGN(const std::string tool, python_json(request_.tools[i], fmt::format("tools[{}]", i)));
      prompt_.text("\n").text(tool);
    }
    prompt_.text("\n</tools>\n\nFor each function call, return a json object with function name and arguments within ");
    prompt_.control(kCallBegin).control(kCallEnd).text(" XML tags:\n").control(kCallBegin);
    prompt_.text("\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n").control(kCallEnd);
    end_turn();
    return {};
  }

  Result<void> assistant_turn(size_t index) {
    const ChatMessage& message = messages_[index];
    const Answer answer = keeps_reasoning_ ? split_answer(message) : Answer{{}, text_of(message)};
    const bool is_last = index + 1 == messages_.size();
    begin_turn(Role::kAssistant);
    if (keeps_reasoning_ && index > last_query_ && (is_last || !answer.reasoning.empty())) {
      prompt_.control(kThinkBegin).text("\n").text(strip_leading_lf(strip_trailing_lf(answer.reasoning)));
      prompt_.text("\n").control(kThinkEnd).text("\n\n").text(strip_leading_lf(answer.content));
    } else {
      prompt_.text(answer.content);
    }
    for (size_t call = 0; call < message.tool_calls.size(); ++call) {
      if (call > 0 || !answer.content.empty()) {
        prompt_.text("\n");
      }
      KIPP_TRY(tool_call(message.tool_calls[call], fmt::format("messages[{}].tool_calls[{}]", index, call)));
    }
    if (!is_last || !request_.continue_final_message) {
      end_turn();
    }
    return {};
  }

  Result<void> tool_call(const ToolCall& call, const std::string& path) {
    prompt_.control(kCallBegin).text("\n{\"name\": \"").text(call.name).text("\", \"arguments\": ");
    if (call.arguments_are_text) {
      prompt_.text(call.arguments);
    } else {
      KIPP_ASSIGN(const std::string arguments, python_json(call.arguments, path + ".arguments"));
      prompt_.text(arguments);
    }
    prompt_.text("}\n").control(kCallEnd);
    return {};
  }

  // Results that follow one another share one user turn.
  void tool_result(size_t index) {
    if (index == 0 || messages_[index - 1].role != Role::kTool) {
      prompt_.control(kTurnBegin).text(turn_name(Role::kTool));
    }
    prompt_.text("\n").control(kResponseBegin).text("\n").text(text_of(messages_[index]));
    prompt_.text("\n").control(kResponseEnd);
    if (index + 1 == messages_.size() || messages_[index + 1].role != Role::kTool) {
      end_turn();
    }
  }

  void generation_prompt() {
    begin_turn(Role::kAssistant);
    if (variant_ == Variant::kThinking2507) {
      prompt_.control(kThinkBegin).text("\n");
    } else if (variant_ == Variant::kInstruct && request_.enable_thinking == false) {
      prompt_.control(kThinkBegin).text("\n\n").control(kThinkEnd).text("\n\n");
    }
  }

  static Result<std::string> python_json(std::string_view text, const std::string& path) {
    const Result<Json> json = parse_json(text);
    if (!json) {
      return make_error(json.error().code, fmt::format("{}: {}", path, json.error().message));
    }
    return write_python_json(*json);
  }

  const std::vector<ChatMessage>& messages_;
  const ChatRequest& request_;
  bool keeps_reasoning_;
  Variant variant_;
  size_t last_query_;
  Prompt prompt_;
};

Result<void> check_utf8(std::string_view text, std::string_view path) {
  const size_t valid = valid_utf8_prefix(text);
  if (valid != text.size()) {
    return make_error(ErrorCode::kInvalidArgument, fmt::format("{}: invalid UTF-8 at byte {}", path, valid));
  }
  return {};
}

Result<void> check_message(const ChatMessage& message, size_t index) {
  const std::string path = fmt::format("messages[{}]", index);
  KIPP_TRY(check_utf8(text_of(message), path + ".content"));
  if (message.reasoning_content) {
    KIPP_TRY(check_utf8(*message.reasoning_content, path + ".reasoning_content"));
  }
  for (size_t i = 0; i < message.tool_calls.size(); ++i) {
    const std::string call_path = fmt::format("{}.tool_calls[{}]", path, i);
    KIPP_TRY(check_utf8(message.tool_calls[i].name, call_path + ".name"));
    KIPP_TRY(check_utf8(message.tool_calls[i].arguments, call_path + ".arguments"));
  }
  return {};
}

Result<void> check_continuation(const ChatRequest& request) {
  const ChatMessage& last = request.messages.back();
  if (!request.continue_final_message ||
      (last.role == Role::kAssistant && last.tool_calls.empty() && !request.add_generation_prompt)) {
    return {};
  }
  return make_error(ErrorCode::kInvalidArgument,
                    "continue_final_message: expected an assistant's message without tool calls as the last one, and "
                    "no generation prompt after it");
}

}  // namespace

Result<Prompt> build_prompt(const ChatRequest& request, Variant variant) {
  if (variant == Variant::kBase) {
    return make_error(ErrorCode::kUnsupported,
                      "a base checkpoint has no chat template: use raw completion (kipp run PROMPT), or an instruct "
                      "checkpoint for chat");
  }
  if (request.messages.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "messages: expected at least one message, found none");
  }
  for (size_t i = 0; i < request.messages.size(); ++i) {
    KIPP_TRY(check_message(request.messages[i], i));
  }
  KIPP_TRY(check_continuation(request));
  return Renderer(request, variant).render();
}

}  // namespace chat

Result<RenderedPrompt> render_chat(const ChatRequest& request, Variant variant, const Tokenizer& tokenizer) {
  KIPP_ASSIGN(const chat::Prompt prompt, chat::build_prompt(request, variant));
  KIPP_ASSIGN(std::vector<int32_t> ids, prompt.encode(tokenizer));
  return RenderedPrompt{prompt.rendered(), std::move(ids)};
}

}  // namespace kipp
