// Shared by the chat tests: requests and prompts from short JSON.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "chat/prompt.h"
#include "kipp_checkpoints.h"

namespace kipp::testing {

inline constexpr Variant kChatVariants[] = {Variant::kInstruct, Variant::kInstruct2507, Variant::kThinking2507};

inline Result<ChatRequest> request_of(std::string_view json, ContentRule rule = ContentRule::kAsTemplate) {
  KIPP_ASSIGN(const Json object, parse_json(json));
  return parse_chat_request(object, rule);
}

// The rendered text, or "error: …".
inline std::string rendered(const ChatRequest& request, Variant variant = Variant::kInstruct) {
  const Result<chat::Prompt> prompt = chat::build_prompt(request, variant);
  return prompt ? prompt->rendered() : "error: " + prompt.error().message;
}

inline std::string rendered(std::string_view json, Variant variant = Variant::kInstruct) {
  const Result<ChatRequest> request = request_of(json);
  return request ? rendered(*request, variant) : "error: " + request.error().message;
}

}  // namespace kipp::testing
