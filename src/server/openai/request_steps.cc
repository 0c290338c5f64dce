// From a body to a checked object, and what must hold between fields. Contract in request_fields.h.
#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "server/openai/request_fields.h"

namespace kipp::openai {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

// nlohmann's reader would skip the mark.
ApiResult<Json> parse_body(std::string_view body, const JsonLimits& limits) {
  const auto invalid = [](std::string reason) { return refuse({}, "invalid_json", std::move(reason)); };
  if (body.empty()) {
    return invalid("expected a JSON object as body, found nothing");
  }
  if (body.starts_with(kByteOrderMark)) {
    return invalid("JSON, byte 0: a byte order mark");
  }
  Result<Json> json = parse_json(body, limits);
  if (!json) {
    return invalid(std::move(json).error().message);
  }
  if (!json->is_object()) {
    return invalid(fmt::format("expected a JSON object as body, found {}", kind_name(json->kind())));
  }
  return std::move(*json);
}

// The fields of a message that its role does not have.
ApiResult<void> check_message(const Json& message, const Path& path) {
  const std::string& role = message.find("role")->as_string();
  if (role != "assistant") {
    if (message.find_value("content") == nullptr) {
      return wrong_value(path.member("content"), "a string or an array of text parts", "nothing");
    }
    for (const char* name : {"reasoning_content", "tool_calls"}) {
      if (message.find_value(name) != nullptr) {
        return refuse(path_text(path.member(name)), "invalid_value",
                      fmt::format("expected in an assistant's message alone, found in one of role \"{}\"", role));
      }
    }
  }
  if (role != "tool" && message.find_value("tool_call_id") != nullptr) {
    return refuse(path_text(path.member("tool_call_id")), "invalid_value",
                  fmt::format("expected in a tool's message alone, found in one of role \"{}\"", role));
  }
  return {};
}

ApiResult<void> check_messages(const Json& body) {
  const Path root;
  const Path path = root.member("messages");
  const std::vector<Json>& messages = body.find("messages")->items();
  for (size_t i = 0; i < messages.size(); ++i) {
    if (auto checked = check_message(messages[i], path.item(i)); !checked) {
      return checked;
    }
  }
  return {};
}

ApiResult<void> check_thinking(const ChatRequest& chat, const Json& body, Variant variant) {
  if (variant != Variant::kThinking2507 || chat.enable_thinking.value_or(true)) {
    return {};
  }
  const bool is_nested = body.find_value("chat_template_kwargs") != nullptr;
  return refuse(is_nested ? "chat_template_kwargs.enable_thinking" : "enable_thinking", "invalid_value",
                "expected true or nothing, since this checkpoint always thinks; found false");
}

// Sets the chat's field, which only the server's requests have.
ApiResult<void> read_continuation(const Json& body, ChatRequest& chat) {
  const Json* field = body.find_value("continue_final_message");
  if (field == nullptr || !field->as_bool()) {
    return {};
  }
  const auto refused = [](std::string reason) {
    return refuse("continue_final_message", "invalid_value", std::move(reason));
  };
  const Json* generation_prompt = body.find_value("add_generation_prompt");
  if (generation_prompt != nullptr && generation_prompt->as_bool()) {
    return refused("expected no \"add_generation_prompt\": true beside it: the answer goes on from the last message");
  }
  const ChatMessage& last = chat.messages.back();
  if (last.role != Role::kAssistant || !last.tool_calls.empty()) {
    return refused("expected an assistant's message without tool calls as the last one");
  }
  chat.add_generation_prompt = false;
  chat.continue_final_message = true;
  return {};
}

}  // namespace

Rules rules_of(const Defaults& defaults) {
  return {.num_tokens = defaults.num_tokens, .lenient = defaults.lenient};
}

Field model_field() {
  return {"model", string(), "A name of the served model (GET /v1/models); may be left out."};
}

Field unsupported_field(std::string name, std::vector<Json> passes) {
  return {.name = std::move(name), .text = "Not supported.", .supported = false, .passes = std::move(passes)};
}

Field plain_field() {
  return {"plain", boolean(), "Control tokens that a text prompt spells are text.", false, Json::boolean(false)};
}

ApiResult<Json> checked_body(std::string_view body, const std::vector<Field>& fields, const Defaults& defaults) {
  ApiResult<Json> json = parse_body(body, defaults.json);
  if (!json) {
    return json;
  }
  const Type type = object(fields);
  if (auto checked = check(*json, type, Path(), rules_of(defaults)); !checked) {
    return tl::unexpected<ApiError>(std::move(checked).error());
  }
  const Json* model = json->find_value("model");
  if (auto checked = check_model(model != nullptr ? model->as_string() : std::string(), defaults); !checked) {
    return tl::unexpected<ApiError>(std::move(checked).error());
  }
  return defaults.lenient ? without_unknown_fields(*json, type) : std::move(*json);
}

ApiResult<void> check_model(const std::string& model, const Defaults& defaults) {
  const std::vector<std::string>& known = defaults.models;
  if (model.empty() || known.empty() || std::ranges::find(known, model) != known.end()) {
    return {};
  }
  const Json name = Json::string(model);
  return tl::unexpected<ApiError>(
      ApiError{.status = 404,
               .type = "not_found_error",
               .code = "model_not_found",
               .param = "model",
               .message = fmt::format("model: expected {}, found {}", fmt::join(known, " or "), found_text(&name))});
}

ApiResult<ChatRequest> chat_of(const Json& body, const Defaults& defaults) {
  if (defaults.variant == Variant::kBase) {
    return refuse("messages", "unsupported", "this base checkpoint has no chat template; use /v1/completions");
  }
  if (auto checked = check_messages(body); !checked) {
    return tl::unexpected<ApiError>(std::move(checked).error());
  }
  Result<ChatRequest> chat = parse_chat_request(body, ContentRule::kTextParts);
  if (!chat) {  // enable_thinking said twice and not alike: the tables have checked all else
    ApiError error = api_error(chat.error());
    error.param = error.message.substr(0, error.message.find(':'));
    return tl::unexpected<ApiError>(std::move(error));
  }
  return check_thinking(*chat, body, defaults.variant)
      .and_then([&] { return read_continuation(body, *chat); })
      .map([&] { return std::move(*chat); });
}

ApiResult<void> check_generation(const Generation& generation, size_t num_prompts, const Defaults& defaults) {
  if (generation.max_tokens && generation.min_tokens > *generation.max_tokens) {
    return refuse("min_tokens", "invalid_value",
                  fmt::format("expected at most {}, the limit of tokens, found {}", *generation.max_tokens,
                              generation.min_tokens));
  }
  const auto num_choices = static_cast<int64_t>(num_prompts) * generation.n;
  if (num_choices > defaults.max_choices) {
    return refuse("n", "invalid_value",
                  fmt::format("expected at most {} choices in one request, found {} prompt{} of {} each",
                              defaults.max_choices, num_prompts, num_prompts == 1 ? "" : "s", generation.n));
  }
  return {};
}

}  // namespace kipp::openai
