// Any bytes as the body of a request. The first byte says whether the server is lenient; the rest goes to every parser.
// What is refused has a message in valid UTF-8; what is accepted keeps every promise of requests.h.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "chat/prompt.h"
#include "fuzz/require.h"
#include "server/openai/requests.h"
#include "tokenizer/utf8.h"

namespace kipp::openai {
namespace {

using fuzzing::require;

void check_ids(const std::vector<int32_t>& ids) {
  require(std::ranges::all_of(ids, [](int32_t id) { return id >= 0 && id < kNumTokens; }));
}

void check_error(const ApiError& error) {
  require(error.status == 400 || error.status == 404);
  require(!error.message.empty() && !error.code.empty());
  const std::string text = write_json(error_json(error));
  require(text.size() < 4000 && parse_json(text).has_value());
}

void check_generation(const Generation& generation) {
  require(validate(generation.sampling, kNumTokens).has_value());
  require(generation.n >= 1 && generation.n <= 128);
  require(generation.num_logprobs >= -1 && generation.num_logprobs <= 20);
  require(generation.min_tokens >= 0 && generation.max_tokens.value_or(0) >= 0);
  require(generation.stop.size() <= 16);
  for (const std::string& stop : generation.stop) {
    require(!stop.empty() && stop.size() <= 1024 && valid_utf8_prefix(stop) == stop.size());
  }
  check_ids(generation.stop_token_ids);
}

void check_chat(const ChatRequest& chat) {
  require(!chat.messages.empty());
  for (const Variant variant : {Variant::kInstruct, Variant::kInstruct2507, Variant::kThinking2507}) {
    require(chat::build_prompt(chat, variant).has_value());
  }
}

void check_request(const CompletionRequest& request) {
  check_generation(request.generation);
  require(!request.prompts.empty());
  for (const auto& prompt : request.prompts) {
    if (const auto* ids = std::get_if<std::vector<int32_t>>(&prompt); ids != nullptr) {
      require(!ids->empty());
      check_ids(*ids);
    } else {
      const auto& text = std::get<std::string>(prompt);
      require(!text.empty() && valid_utf8_prefix(text) == text.size());
    }
  }
}

void check_request(const ChatCompletionRequest& request) {
  check_generation(request.generation);
  check_chat(request.chat);
  require(!request.tool_calls || !request.chat.tools.empty());
  require(!request.chat.continue_final_message || request.chat.messages.back().role == Role::kAssistant);
}

void check_request(const TokenizeRequest& request) {
  require(request.prompt.has_value() != request.chat.has_value());
  if (request.chat) {
    check_chat(*request.chat);
  }
}

void check_request(const DetokenizeRequest& request) {
  check_ids(request.tokens);
}

void check_request(const ApplyTemplateRequest& request) {
  check_chat(request.chat);
}

template <typename Parse>
void check_parser(Parse parse, std::string_view body, bool lenient) {
  Defaults defaults;
  defaults.lenient = lenient;
  const auto request = parse(body, defaults);
  if (request) {
    check_request(*request);
  } else {
    check_error(request.error());
  }
  defaults.lenient = true;
  require(!request || parse(body, defaults).has_value());  // who ignores more accepts more
}

}  // namespace
}  // namespace kipp::openai

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kipp::openai;
  if (size == 0) {
    return 0;
  }
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  const bool lenient = (data[0] & 1U) != 0;
  check_parser(parse_completion_request, body, lenient);
  check_parser(parse_chat_completion_request, body, lenient);
  check_parser(parse_tokenize_request, body, lenient);
  check_parser(parse_detokenize_request, body, lenient);
  check_parser(parse_apply_template_request, body, lenient);
  return 0;
}
