// Field by field.
#include "cli/message_json.h"

#include <string>

#include "base/json_values.h"

namespace kipp::cli {
namespace {

const char* role_name(Role role) {
  switch (role) {
    case Role::kSystem: return "system";
    case Role::kUser: return "user";
    case Role::kAssistant: return "assistant";
    case Role::kTool: return "tool";
  }
  return "";
}

Json call_json(const ToolCall& call) {
  return Json::object(
      {{"type", Json::string("function")},
       {"function", Json::object({{"name", Json::string(call.name)}, {"arguments", Json::string(call.arguments)}})}});
}

}  // namespace

Json message_json(const ChatMessage& message) {
  Json json = Json::object(
      {{"role", Json::string(role_name(message.role))}, {"content", Json::string(message.content.value_or(""))}});
  if (message.reasoning_content) {
    json.set("reasoning_content", Json::string(*message.reasoning_content));
  }
  if (!message.tool_calls.empty()) {
    json.set("tool_calls", array_json(message.tool_calls, call_json));
  }
  return json;
}

}  // namespace kipp::cli
