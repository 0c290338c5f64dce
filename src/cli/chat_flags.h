// The flags of a chat: system prompt, thinking, tools. In JSON Lines they are the defaults of lines that say nothing.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "kipp/chat.h"
#include "kipp/error.h"

namespace CLI {
class App;
}

namespace kipp::cli {

// Fields of a JSON line that only a chat has.
inline constexpr std::array<std::string_view, 4> kChatFields = {"tools", "enable_thinking", "chat_template_kwargs",
                                                                "add_generation_prompt"};

struct ChatFlags {
  std::optional<std::string> system;  // may be empty, which is not the same as none
  std::string thinking;               // "on", "off" or empty: the template's default
  std::string tools_path;             // a JSON array of tools
  std::optional<Json> tools;          // its content
};

void add_chat_flags(CLI::App& command, ChatFlags& flags);

// True if one of the flags was given.
bool any_chat_flag(const ChatFlags& flags);

// Reads --tools. Errors: those of read_file and parse_json, naming the file.
Result<void> load_tools(ChatFlags& flags);

// The messages of a chat of one user message.
Json messages_of_prompt(std::string_view prompt);
// The chat of a JSON object; the flags fill what it does not say. Errors: those of parse_chat_request.
Result<ChatRequest> chat_of_json(const Json& object, const ChatFlags& flags, ContentRule content_rule);

}  // namespace kipp::cli
