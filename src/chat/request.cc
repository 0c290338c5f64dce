// A chat request from JSON: the shapes that OpenAI's clients and the official templates accept, errors with a path.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "base/json.h"
#include "kipp/chat.h"

namespace kipp {
namespace {

tl::unexpected<Error> unexpected_value(std::string_view path, std::string_view expected, std::string_view found) {
  return make_error(ErrorCode::kInvalidArgument, fmt::format("{}: expected {}, found {}", path, expected, found));
}

std::string describe(const Json* value) {
  constexpr size_t kShown = 60;
  if (value == nullptr) {
    return "nothing";
  }
  if (value->is_string() && value->as_string().size() <= kShown) {
    return write_json(*value);
  }
  return std::string(kind_name(value->kind()));
}

Result<const std::string*> required_string(const Json& object, std::string_view key, const std::string& path) {
  const Json* value = object.find(key);
  if (value == nullptr || !value->is_string()) {
    return unexpected_value(fmt::format("{}.{}", path, key), "a string", describe(value));
  }
  return &value->as_string();
}

Result<std::optional<bool>> optional_bool(const Json& object, std::string_view key, std::string_view path) {
  const Json* value = object.find_value(key);
  if (value == nullptr) {
    return std::nullopt;
  }
  if (!value->is_bool()) {
    return unexpected_value(path, "true or false", describe(value));
  }
  return value->as_bool();
}

Result<Role> parse_role(const Json& message, const std::string& path) {
  const Json* role = message.find("role");
  const std::string_view name = role != nullptr ? std::string_view(role->as_string()) : std::string_view();
  if (name == "system") return Role::kSystem;
  if (name == "user") return Role::kUser;
  if (name == "assistant") return Role::kAssistant;
  if (name == "tool") return Role::kTool;
  return unexpected_value(path + ".role", "one of system, user, assistant, tool", describe(role));
}

Result<std::string> join_text_parts(const Json& parts, const std::string& path) {
  std::string joined;
  for (size_t i = 0; i < parts.items().size(); ++i) {
    const Json& part = parts.items()[i];
    const std::string part_path = fmt::format("{}[{}]", path, i);
    if (!part.is_object()) {
      return unexpected_value(part_path, "an object", describe(&part));
    }
    KIPP_ASSIGN(const std::string* type, required_string(part, "type", part_path));
    if (*type != "text") {
      return unexpected_value(part_path + ".type", "\"text\" (the only kind of content part)",
                              describe(part.find("type")));
    }
    KIPP_ASSIGN(const std::string* text, required_string(part, "text", part_path));
    joined += i > 0 ? "\n" : "";
    joined += *text;
  }
  return joined;
}

Result<std::optional<std::string>> parse_content(const Json& message, const std::string& path, ContentRule rule) {
  const Json* content = message.find_value("content");
  if (content == nullptr) {
    return std::nullopt;
  }
  if (content->is_string()) {
    return content->as_string();
  }
  if (rule == ContentRule::kAsTemplate) {
    return std::nullopt;
  }
  if (!content->is_array()) {
    return unexpected_value(path + ".content", "a string, null or an array of text parts", describe(content));
  }
  return join_text_parts(*content, path + ".content");
}

Result<ToolCall> parse_tool_call(const Json& call, const std::string& path) {
  if (!call.is_object()) {
    return unexpected_value(path, "an object", describe(&call));
  }
  // The template reads the flat shape wherever "function" is missing, null or empty.
  const Json* function = call.find_value("function");
  if (function != nullptr && !function->is_object()) {
    return unexpected_value(path + ".function", "an object", describe(function));
  }
  const bool is_flat = function == nullptr || function->members().empty();
  const Json& source = is_flat ? call : *function;
  const std::string source_path = is_flat ? path : path + ".function";
  ToolCall result;
  if (const Json* id = call.find_value("id"); id != nullptr) {
    KIPP_ASSIGN(const std::string* text, required_string(call, "id", path));
    result.id = *text;
  }
  KIPP_ASSIGN(const std::string* name, required_string(source, "name", source_path));
  result.name = *name;
  const Json* arguments = source.find("arguments");
  if (arguments == nullptr) {
    return unexpected_value(source_path + ".arguments", "JSON text or a JSON value", describe(arguments));
  }
  result.arguments_are_text = arguments->is_string();
  result.arguments = arguments->is_string() ? arguments->as_string() : write_json(*arguments);
  return result;
}

// A field that is not known would be left out of the prompt unnoticed. null says nothing, whatever its name.
Result<void> check_names(const Json& object, std::span<const std::string_view> known, std::string_view path) {
  for (const auto& [name, value] : object.members()) {
    if (!value.is_null() && std::ranges::find(known, name) == known.end()) {
      return unexpected_value(path, fmt::format("the fields {} alone", fmt::join(known, ", ")),
                              fmt::format("\"{}\"", name));
    }
  }
  return {};
}

// The first four are rendered, of the roles that have them; the others are in messages of OpenAI's clients and servers,
// and the templates leave them out.
constexpr std::array<std::string_view, 8> kMessageFields = {"role", "content",      "reasoning_content", "tool_calls",
                                                            "name", "tool_call_id", "refusal",           "annotations"};

Result<ChatMessage> parse_message(const Json& message, const std::string& path, ContentRule rule) {
  if (!message.is_object()) {
    return unexpected_value(path, "an object", describe(&message));
  }
  if (rule == ContentRule::kTextParts) {
    KIPP_TRY(check_names(message, kMessageFields, path));
  }
  ChatMessage result;
  KIPP_ASSIGN(result.role, parse_role(message, path));
  KIPP_ASSIGN(result.content, parse_content(message, path, rule));
  if (result.role != Role::kAssistant) {
    return result;  // reasoning and calls of other roles are not rendered
  }
  const Json* reasoning = message.find_value("reasoning_content");
  if (reasoning != nullptr && reasoning->is_string()) {
    result.reasoning_content = reasoning->as_string();
  } else if (reasoning != nullptr && rule == ContentRule::kTextParts) {
    return unexpected_value(path + ".reasoning_content", "a string or null", describe(reasoning));
  }
  const Json* calls = message.find_value("tool_calls");
  if (calls == nullptr) {
    return result;
  }
  if (!calls->is_array()) {
    return unexpected_value(path + ".tool_calls", "an array", describe(calls));
  }
  for (size_t i = 0; i < calls->items().size(); ++i) {
    KIPP_ASSIGN(ToolCall call, parse_tool_call(calls->items()[i], fmt::format("{}.tool_calls[{}]", path, i)));
    result.tool_calls.push_back(std::move(call));
  }
  return result;
}

Result<std::vector<ChatMessage>> parse_messages(const Json& object, ContentRule rule) {
  const Json* messages = object.find("messages");
  if (messages == nullptr || !messages->is_array()) {
    return unexpected_value("messages", "an array", describe(messages));
  }
  if (messages->items().empty()) {
    return unexpected_value("messages", "at least one message", "none");
  }
  std::vector<ChatMessage> result;
  for (size_t i = 0; i < messages->items().size(); ++i) {
    KIPP_ASSIGN(ChatMessage message, parse_message(messages->items()[i], fmt::format("messages[{}]", i), rule));
    result.push_back(std::move(message));
  }
  return result;
}

Result<std::vector<std::string>> parse_tools(const Json& object) {
  std::vector<std::string> result;
  const Json* tools = object.find_value("tools");
  if (tools == nullptr) {
    return result;
  }
  if (!tools->is_array()) {
    return unexpected_value("tools", "an array", describe(tools));
  }
  for (size_t i = 0; i < tools->items().size(); ++i) {
    const Json& tool = tools->items()[i];
    if (!tool.is_object()) {
      return unexpected_value(fmt::format("tools[{}]", i), "an object", describe(&tool));
    }
    result.push_back(write_json(tool));
  }
  return result;
}

Result<std::optional<bool>> parse_enable_thinking(const Json& object, ContentRule rule) {
  constexpr std::string_view kKwargs = "chat_template_kwargs";
  constexpr std::string_view kNested = "chat_template_kwargs.enable_thinking";
  KIPP_ASSIGN(const std::optional<bool> outer, optional_bool(object, "enable_thinking", "enable_thinking"));
  const Json* kwargs = object.find_value(kKwargs);
  if (kwargs == nullptr) {
    return outer;
  }
  if (!kwargs->is_object()) {
    return unexpected_value(kKwargs, "an object", describe(kwargs));
  }
  if (rule == ContentRule::kTextParts) {
    constexpr std::array<std::string_view, 1> kKnown = {"enable_thinking"};
    KIPP_TRY(check_names(*kwargs, kKnown, kKwargs));
  }
  KIPP_ASSIGN(const std::optional<bool> nested, optional_bool(*kwargs, "enable_thinking", kNested));
  if (outer && nested && *outer != *nested) {
    return unexpected_value(kNested, "the same value as enable_thinking", *nested ? "true" : "false");
  }
  return nested ? nested : outer;
}

}  // namespace

Result<ChatRequest> parse_chat_request(const Json& object, ContentRule content_rule) {
  if (!object.is_object()) {
    return unexpected_value("the request", "an object", describe(&object));
  }
  ChatRequest request;
  KIPP_ASSIGN(request.messages, parse_messages(object, content_rule));
  KIPP_ASSIGN(request.tools, parse_tools(object));
  KIPP_ASSIGN(request.enable_thinking, parse_enable_thinking(object, content_rule));
  KIPP_ASSIGN(const std::optional<bool> add_generation_prompt,
              optional_bool(object, "add_generation_prompt", "add_generation_prompt"));
  request.add_generation_prompt = add_generation_prompt.value_or(true);
  return request;
}

}  // namespace kipp
