// Field by field.
#include "cli/message_json.h"

#include <string>
#include <utility>
#include <vector>

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
    std::vector<Json> calls;
    for (const ToolCall& call : message.tool_calls) {
      calls.push_back(call_json(call));
    }
    json.set("tool_calls", Json::array(std::move(calls)));
  }
  return json;
}

}  // namespace kipp::cli
