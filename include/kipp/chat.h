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

// Every field has an initializer, so that designated initializers may leave any out without a warning.
struct ToolCall {
  std::string id = {};              // OpenAI's call id; not rendered
  std::string name = {};            // pasted as it is
  std::string arguments = {};       // JSON text, unless arguments_are_text
  bool arguments_are_text = false;  // true: came as a string, pasted as it is; false: came as any other JSON value,
                                    // written as Python's json.dumps writes it
};

enum class Role : uint8_t { kSystem, kUser, kAssistant, kTool };

struct ChatMessage {
  Role role = Role::kUser;
  std::optional<std::string> content = {};            // unset (null, absent, not a string): rendered as empty text
  std::optional<std::string> reasoning_content = {};  // assistant; unset: the template takes it out of the content
  std::vector<ToolCall> tool_calls = {};              // assistant
};

struct ChatRequest {
  std::vector<ChatMessage> messages = {};
  std::vector<std::string> tools = {};  // each a tool's JSON text, written into the prompt as Python's json.dumps does
  std::optional<bool> enable_thinking = {};  // unset: the template's default; a no-op for the 2507 variants
  bool add_generation_prompt = true;
  // The last message is the beginning of the answer: its turn is left open. Then it is an assistant's without tool
  // calls, and add_generation_prompt is false.
  bool continue_final_message = false;
};

struct RenderedPrompt {
  std::string text;          // byte for byte what the official template renders
  std::vector<int32_t> ids;  // control tokens only where the template's own text has them
};

// Errors: kUnsupported (a base checkpoint has no chat template; the tokenizer lacks one of its control tokens),
// kInvalidArgument (no messages; invalid UTF-8; tools or arguments that are not JSON; a last message that cannot be
// continued), naming the path.
Result<RenderedPrompt> render_chat(const ChatRequest& request, Variant variant, const Tokenizer& tokenizer);

// What becomes of content and reasoning_content that is neither a string nor null nor absent, and of unknown fields in
// messages and chat_template_kwargs.
enum class ContentRule : uint8_t {
  kAsTemplate,  // they count as absent, as in the official templates
  kTextParts,   // content as OpenAI's [{"type": "text", "text": "…"}, …] is joined by LF; anything else is refused
};

// Reads the fields of one JSON object: messages, tools, enable_thinking (also inside chat_template_kwargs),
// add_generation_prompt. Fields of the object that it does not know are the caller's business. Tool calls come in
// OpenAI's shape
// ({"id", "function": {"name", "arguments"}}) or flat ({"name", "arguments"}).
// Errors: kInvalidArgument naming the path (messages[2].role), expected and found; unknown roles are refused.
Result<ChatRequest> parse_chat_request(const Json& object, ContentRule content_rule = ContentRule::kAsTemplate);

}  // namespace kipp
