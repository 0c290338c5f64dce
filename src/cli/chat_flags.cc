// Flags to a chat request: --tools is read from its file, and a JSON line gets what it does not say itself.
#include "cli/chat_flags.h"

#include <utility>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/input.h"
#include "cli/text_flag.h"

namespace kipp::cli {
void add_chat_flags(CLI::App& command, ChatFlags& flags) {
  const std::string group = "Chat";
  command.add_option("--system", flags.system, "System prompt")->check(is_utf8())->type_name("TEXT")->group(group);
  command.add_option("--thinking", flags.thinking, "Let the model think first, or not (default: the template's)")
      ->check(CLI::IsMember({"on", "off"}))
      ->group(group);
  command.add_option("--tools", flags.tools_path, "JSON array of tools; - is standard input")
      ->check(not_empty())
      ->type_name("FILE")
      ->group(group);
}

bool any_chat_flag(const ChatFlags& flags) {
  return flags.system.has_value() || !flags.thinking.empty() || !flags.tools_path.empty();
}

Result<void> load_tools(ChatFlags& flags) {
  if (flags.tools_path.empty()) {
    return {};
  }
  KIPP_ASSIGN(const std::string text, read_file(flags.tools_path));
  Result<Json> tools = parse_json(text);
  if (!tools) {
    return make_error(tools.error().code, fmt::format("{}: {}", flags.tools_path, tools.error().message));
  }
  flags.tools = std::move(*tools);
  return {};
}

Json messages_of_prompt(std::string_view prompt) {
  return Json::array({Json::object({{"role", Json::string("user")}, {"content", Json::string(std::string(prompt))}})});
}

Result<ChatRequest> chat_of_json(const Json& object, const ChatFlags& flags, ContentRule content_rule) {
  Json with_tools = object;
  if (flags.tools && object.find_value("tools") == nullptr) {
    with_tools.set("tools", *flags.tools);
  }
  KIPP_ASSIGN(ChatRequest request, parse_chat_request(with_tools, content_rule));
  if (!request.enable_thinking && !flags.thinking.empty()) {
    request.enable_thinking = flags.thinking == "on";
  }
  const bool has_system = !request.messages.empty() && request.messages.front().role == Role::kSystem;
  if (flags.system && !has_system) {
    ChatMessage system;
    system.role = Role::kSystem;
    system.content = flags.system;
    request.messages.insert(request.messages.begin(), std::move(system));
  }
  return request;
}

}  // namespace kipp::cli
