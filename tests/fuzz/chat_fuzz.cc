// Any bytes as a chat request: refused with a path, or rendered for every variant so that control tokens are exactly
// those of the template. A tokenizer is not needed: Prompt::parts shows what would be encoded as control tokens.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"
#include "chat/prompt.h"
#include "fuzz/require.h"
#include "kipp_checkpoints.h"

namespace {

using kipp::fuzzing::require;

size_t num_controls(const kipp::chat::Prompt& prompt, std::string_view token) {
  const auto parts = prompt.parts();
  return static_cast<size_t>(std::count_if(parts.begin(), parts.end(),
                                           [&](const auto& part) { return part.is_control && part.text == token; }));
}

// Turns, calls and results as the request has them, whatever its texts say.
void check(const kipp::ChatRequest& request, const kipp::chat::Prompt& prompt) {
  size_t turns = 0;
  size_t calls = request.tools.empty() ? 0 : 2;
  size_t results = 0;
  for (size_t i = 0; i < request.messages.size(); ++i) {
    const kipp::ChatMessage& message = request.messages[i];
    const bool is_result = message.role == kipp::Role::kTool;
    turns += !is_result || i == 0 || request.messages[i - 1].role != kipp::Role::kTool ? size_t{1} : size_t{0};
    calls += message.tool_calls.size();
    results += is_result ? 1 : 0;
  }
  turns += !request.tools.empty() && request.messages.front().role != kipp::Role::kSystem ? size_t{1} : size_t{0};
  require(num_controls(prompt, "<|im_end|>") == turns);
  require(num_controls(prompt, "<|im_start|>") == turns + (request.add_generation_prompt ? 1 : 0));
  require(num_controls(prompt, "<tool_call>") == calls && num_controls(prompt, "</tool_call>") == calls);
  require(num_controls(prompt, "<tool_response>") == results && num_controls(prompt, "</tool_response>") == results);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto json = kipp::parse_json(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!json) {
    return 0;
  }
  for (const auto rule : {kipp::ContentRule::kAsTemplate, kipp::ContentRule::kTextParts}) {
    const auto request = kipp::parse_chat_request(*json, rule);
    if (!request) {
      require(!request.error().message.empty());
      continue;
    }
    for (const auto variant : {kipp::Variant::kInstruct, kipp::Variant::kInstruct2507, kipp::Variant::kThinking2507}) {
      const auto prompt = kipp::chat::build_prompt(*request, variant);
      require(prompt.has_value());  // what came from JSON is valid UTF-8, and its tools and arguments are JSON
      check(*request, *prompt);
    }
  }
  return 0;
}
