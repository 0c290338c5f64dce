// POST /tokenize, /detokenize and /apply-template. Contract in requests.h.
#include <utility>

#include "server/openai/request_fields.h"

namespace kipp::openai {
namespace {

// chat_fields() in a table: parse_chat_request() reads them.
template <typename Request>
void add_chat(FieldTable<Request>& table, bool required) {
  for (Field field : chat_fields()) {
    field.required = field.required && required;
    table.add(std::move(field));
  }
  table.add(continue_final_message_field());
}

// A prompt or a chat, and nothing of the one beside the other.
ApiResult<void> check_choice(const Json& body) {
  const bool has_prompt = body.find_value("prompt") != nullptr;
  const bool has_messages = body.find_value("messages") != nullptr;
  if (has_prompt == has_messages) {
    return refuse("prompt", has_prompt ? "invalid_value" : "missing_required_parameter",
                  has_prompt ? "expected one of \"prompt\" and \"messages\", found both"
                             : "expected a \"prompt\" or \"messages\", found neither");
  }
  if (has_messages && body.find_value("plain") != nullptr) {
    return refuse("plain", "invalid_value", "expected beside \"prompt\" alone; text in a chat is always plain");
  }
  for (const char* name :
       {"tools", "chat_template_kwargs", "enable_thinking", "add_generation_prompt", "continue_final_message"}) {
    if (has_prompt && body.find_value(name) != nullptr) {
      return refuse(name, "invalid_value", "expected beside \"messages\" alone");
    }
  }
  return {};
}

}  // namespace

const FieldTable<TokenizeRequest>& tokenize_fields() {
  static const FieldTable<TokenizeRequest> table = [] {
    FieldTable<TokenizeRequest> fields;
    fields.add(model_field(), [](const Json& value, TokenizeRequest& to) { to.model = value.as_string(); })
        .add({"prompt", string(), "The text; this or `messages`."},
             [](const Json& value, TokenizeRequest& to) { to.prompt = value.as_string(); })
        .add(plain_field(), [](const Json& value, TokenizeRequest& to) { to.plain = value.as_bool(); })
        .add({"return_token_strs", boolean(), "The answer also holds the text of each token.", false,
              Json::boolean(false)},
             [](const Json& value, TokenizeRequest& to) { to.return_token_strs = value.as_bool(); });
    add_chat(fields, false);
    fields.add({"add_special_tokens", boolean(), "No effect: these checkpoints put no token before a text."});
    return fields;
  }();
  return table;
}

const FieldTable<DetokenizeRequest>& detokenize_fields() {
  static const FieldTable<DetokenizeRequest> table = [] {
    FieldTable<DetokenizeRequest> fields;
    fields.add(model_field(), [](const Json& value, DetokenizeRequest& to) { to.model = value.as_string(); })
        .add({"tokens", array(token_id()), "The token ids.", true},
             [](const Json& value, DetokenizeRequest& to) {
               for (const Json& id : value.items()) {
                 to.tokens.push_back(static_cast<int32_t>(id.as_int64().value_or(0)));
               }
             })
        .add({"skip_special_tokens", boolean(), "Control tokens are left out.", false, Json::boolean(false)},
             [](const Json& value, DetokenizeRequest& to) { to.skip_special_tokens = value.as_bool(); });
    return fields;
  }();
  return table;
}

const FieldTable<ApplyTemplateRequest>& apply_template_fields() {
  static const FieldTable<ApplyTemplateRequest> table = [] {
    FieldTable<ApplyTemplateRequest> fields;
    fields.add(model_field(), [](const Json& value, ApplyTemplateRequest& to) { to.model = value.as_string(); });
    add_chat(fields, true);
    return fields;
  }();
  return table;
}

ApiResult<TokenizeRequest> parse_tokenize_request(std::string_view body, const Defaults& defaults) {
  return checked_body(body, tokenize_fields().fields(), defaults)
      .and_then([&](const Json& object) { return check_choice(object).map([&] { return object; }); })
      .and_then([&](const Json& object) -> ApiResult<TokenizeRequest> {
        TokenizeRequest request;
        tokenize_fields().store(object, request);
        if (request.prompt) {
          return request;
        }
        return chat_of(object, defaults).map([&](ChatRequest&& chat) {
          request.chat = std::move(chat);
          return std::move(request);
        });
      });
}

ApiResult<DetokenizeRequest> parse_detokenize_request(std::string_view body, const Defaults& defaults) {
  return checked_body(body, detokenize_fields().fields(), defaults).map([](const Json& object) {
    DetokenizeRequest request;
    detokenize_fields().store(object, request);
    return request;
  });
}

ApiResult<ApplyTemplateRequest> parse_apply_template_request(std::string_view body, const Defaults& defaults) {
  return checked_body(body, apply_template_fields().fields(), defaults).and_then([&](const Json& object) {
    return chat_of(object, defaults).map([&](ChatRequest&& chat) {
      ApplyTemplateRequest request;
      apply_template_fields().store(object, request);
      request.chat = std::move(chat);
      return request;
    });
  });
}

}  // namespace kipp::openai
