// Native rendering of the Qwen3 chat templates (ChatML): messages to token ids. The templates shipped with a checkpoint
// are recorded but never executed. Control tokens come from the renderer alone: text from users, tools and documents
// can never close or open a turn.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kipp/error.h"
#include "kipp/tokenizer.h"

namespace kipp {

enum class Variant;  // kipp_checkpoints.h
class Json;          // base/json.h

struct ToolCall {
  std::string id;              // OpenAI's call id; not rendered
  std::string name;
  std::string arguments;       // JSON text
  bool arguments_are_text = false;  // true: came as a string, pasted as it is; false: came as an object, written as
                                    // Python's json.dumps writes it
};

enum class Role : uint8_t { kSystem, kUser, kAssistant, kTool };

struct ChatMessage {
  Role role = Role::kUser;
  std::string content;                           // empty for null, absent or non-string content
  std::optional<std::string> reasoning_content;  // assistant
  std::vector<ToolCall> tool_calls;              // assistant
};

struct ChatRequest {
  std::vector<ChatMessage> messages;
  std::vector<std::string> tools;       // each a tool's JSON text, written into the prompt as Python's json.dumps does
  std::optional<bool> enable_thinking;  // unset: the template's default
  bool add_generation_prompt = true;
};

struct RenderedPrompt {
  std::string text;          // byte for byte what the official template renders
  std::vector<int32_t> ids;  // control tokens only where the renderer put them
};

// Errors: kUnsupported (a base checkpoint has no chat template), kInvalidArgument (no messages; invalid UTF-8; tools or
// arguments that are not JSON), naming the message.
Result<RenderedPrompt> render_chat(const ChatRequest& request, Variant variant, const Tokenizer& tokenizer);

// Reads the fields of one JSON object: messages, tools, enable_thinking (also inside chat_template_kwargs),
// add_generation_prompt. Fields it does not know are the caller's business. Text content and content-part arrays of text.
// Errors: kInvalidArgument naming the path (messages[2].role), expected and found; unknown roles are refused.
Result<ChatRequest> parse_chat_request(const Json& object);

}  // namespace kipp
