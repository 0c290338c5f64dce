// A message of a chat as OpenAI's JSON object.
#pragma once

#include "base/json.h"
#include "kipp/chat.h"

namespace kipp::cli {

// role, content (of an assistant also when it is empty), reasoning_content and tool_calls where there are any; the
// arguments of a call as JSON text. parse_chat_request reads it back.
Json message_json(const ChatMessage& message);

}  // namespace kipp::cli
