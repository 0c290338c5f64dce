// POST /v1/chat/completions. Contract in requests.h.
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "server/openai/request_fields.h"

namespace kipp::openai {
namespace {

// Fields of OpenAI's schema that ask for what Kipp has not.
void add_unsupported_fields(FieldTable<ChatCompletionRequest>& table) {
  const auto text = [](const char* value) { return Json::string(value); };
  table.add(unsupported_field("audio"))
      .add(unsupported_field("function_call", {text("none")}))
      .add(unsupported_field("functions", {Json::array()}))
      .add(unsupported_field("modalities", {Json::array({text("text")})}))
      .add(unsupported_field("moderation"))
      .add(unsupported_field("prediction"))
      .add(unsupported_field("prompt_cache_key"))
      .add(unsupported_field("prompt_cache_retention"))
      .add(unsupported_field("reasoning_effort", {text("medium")}))
      .add(unsupported_field("safety_identifier"))
      .add(unsupported_field("service_tier", {text("auto"), text("default")}))
      .add(unsupported_field("store", {Json::boolean(false)}))
      .add(unsupported_field("verbosity", {text("medium")}))
      .add(unsupported_field("web_search_options"));
}

const std::vector<Field>& response_format_fields() {
  static const std::vector<Field> fields = {
      {"type", labelled(choice({"text"}), "\"text\" (Kipp does not support other formats)"), "The only format.", true},
  };
  return fields;
}

void add_own_fields(FieldTable<ChatCompletionRequest>& table) {
  table.add(model_field(), [](const Json& value, ChatCompletionRequest& to) { to.model = value.as_string(); });
  for (const Field& field : chat_fields()) {
    table.add(field);  // read by parse_chat_request()
  }
  table
      .add(continue_final_message_field())  // read with the messages
      .add({"tool_choice",
            labelled(choice({"none", "auto"}), "\"none\" or \"auto\" (Kipp does not support other choices)"),
            "`none`: what looks like a call is text; the tools stay in the prompt.", false, Json::string("auto")},
           [](const Json& value, ChatCompletionRequest& to) { to.tool_calls = value.as_string() == "auto"; })
      .add({"parallel_tool_calls", boolean(), "false: the answer ends after its first call.", false,
            Json::boolean(true)},
           [](const Json& value, ChatCompletionRequest& to) { to.parallel_tool_calls = value.as_bool(); })
      .add({"logprobs", boolean(), "Log-probabilities of the answer's tokens.", false, Json::boolean(false)},
           [](const Json& value, ChatCompletionRequest& to) { to.generation.num_logprobs = value.as_bool() ? 0 : -1; })
      .add({"top_logprobs", integer(0, 20), "Of so many best tokens at each place, too. Needs `logprobs`.", false,
            Json::number(int64_t{0})},
           [](const Json& value, ChatCompletionRequest& to) {
             const auto num_best = static_cast<int32_t>(value.as_int64().value_or(0));
             to.generation.num_logprobs = to.generation.num_logprobs >= 0 ? num_best : -1;
           })
      .add({"response_format", object(response_format_fields()), "Only `{\"type\": \"text\"}`."});
}

ApiResult<void> check_top_logprobs(const Json& body) {
  const Json* logprobs = body.find_value("logprobs");
  const Json* best = body.find_value("top_logprobs");
  if (best == nullptr || best->as_int64() == 0 || (logprobs != nullptr && logprobs->as_bool())) {
    return {};
  }
  return refuse("top_logprobs", "invalid_value",
                fmt::format("expected \"logprobs\": true beside it, found {}", found_text(logprobs)));
}

}  // namespace

const FieldTable<ChatCompletionRequest>& chat_completion_fields() {
  static const FieldTable<ChatCompletionRequest> table = [] {
    FieldTable<ChatCompletionRequest> fields;
    add_own_fields(fields);
    fields.include(generation_fields(), &ChatCompletionRequest::generation);
    fields.add({"max_completion_tokens", integer(0, std::numeric_limits<int32_t>::max()),
                "The same as `max_tokens`, and wins over it."},
               [](const Json& value, ChatCompletionRequest& to) {
                 to.generation.max_tokens = static_cast<int32_t>(value.as_int64().value_or(0));
               });
    add_unsupported_fields(fields);
    return fields;
  }();
  return table;
}

ApiResult<ChatCompletionRequest> parse_chat_completion_request(std::string_view body, const Defaults& defaults) {
  const auto object = checked_body(body, chat_completion_fields().fields(), defaults);
  if (!object) {
    return tl::unexpected<ApiError>(object.error());
  }
  ChatCompletionRequest request;
  request.generation.sampling = defaults.sampling;
  request.tool_calls = true;
  chat_completion_fields().store(*object, request);
  return check_top_logprobs(*object)
      .and_then([&] { return check_generation(request.generation, 1, defaults); })
      .and_then([&] { return chat_of(*object, defaults); })
      .map([&](ChatRequest&& chat) {
        request.chat = std::move(chat);
        request.tool_calls = request.tool_calls && !request.chat.tools.empty();
        return std::move(request);
      });
}

}  // namespace kipp::openai
