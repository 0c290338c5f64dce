// Tables to JSON Schema, and the list of paths. Contract in openapi.h.
#include "server/openai/openapi.h"

#include <array>
#include <cmath>
#include <utility>

#include "server/openai/answer_fields.h"
#include "server/openai/request_fields.h"

namespace kipp::openai {
namespace {

Json text(std::string_view value) {
  return Json::string(std::string(value));
}

Json size_json(size_t size) {
  return Json::number(static_cast<int64_t>(size));
}

Json typed(std::string_view name) {
  return Json::object({{"type", text(name)}});
}

Json sized(Json schema, const Type& type, std::string_view suffix) {
  if (type.min_size > 0) {
    schema.set("min" + std::string(suffix), size_json(type.min_size));
  }
  if (type.max_size != kNoLimit) {
    schema.set("max" + std::string(suffix), size_json(type.max_size));
  }
  return schema;
}

Json integer_schema(int64_t least, uint64_t most) {
  Json schema = typed("integer");
  schema.set("minimum", Json::number(least));
  schema.set("maximum", Json::number_literal(std::to_string(most)));
  return schema;
}

Json number_schema(const Type& type) {
  Json schema = typed("number");
  schema.set(type.above_low ? "exclusiveMinimum" : "minimum", Json::number(type.low));
  if (!std::isinf(type.high)) {
    schema.set("maximum", Json::number(type.high));
  }
  return schema;
}

Json string_schema(const Type& type) {
  Json schema = sized(typed("string"), type, "Length");
  if (!type.values.empty()) {
    Json values = Json::array();
    for (const std::string& value : type.values) {
      values.push_back(text(value));
    }
    schema.set("enum", std::move(values));
  }
  return schema;
}

Json map_schema(const Type& type, const Rules& rules) {
  Json schema = sized(typed("object"), type, "Properties");
  schema.set("additionalProperties", schema_json(type.parts.front(), rules));
  if (type.id_keys) {
    schema.set("propertyNames", Json::object({{"pattern", text("^(0|[1-9][0-9]{0,5})$")}}));
  }
  return schema;
}

Json or_null(Json schema) {
  return Json::object({{"anyOf", Json::array({std::move(schema), typed("null")})}});
}

Json unsupported_schema(const Field& field) {
  Json values = Json::array(field.passes);
  values.push_back(Json());
  return Json::object({{"enum", std::move(values)}});
}

Json field_schema(const Field& field, const Rules& rules) {
  Json schema = field.supported ? schema_json(field.type, rules) : unsupported_schema(field);
  if (field.supported && !field.required && field.type.kind != Type::Kind::kAny) {
    schema = or_null(std::move(schema));
  }
  if (!field.text.empty()) {
    schema.set("description", text(field.text));
  }
  if (!field.standard.is_null()) {
    schema.set("default", field.standard);
  }
  return schema;
}

Json object_schema(const std::vector<Field>& fields, const Rules& rules) {
  Json properties = Json::object();
  Json required = Json::array();
  for (const Field& field : fields) {
    properties.set(field.name, field_schema(field, rules));
    if (field.required) {
      required.push_back(text(field.name));
    }
  }
  Json schema = typed("object");
  schema.set("properties", std::move(properties));
  schema.set("additionalProperties", Json::boolean(rules.lenient));
  if (!required.items().empty()) {
    schema.set("required", std::move(required));
  }
  return schema;
}

Json one_of_schema(const Type& type, const Rules& rules) {
  Json schemas = Json::array();
  for (const Type& part : type.parts) {
    schemas.push_back(schema_json(part, rules));
  }
  return Json::object({{"anyOf", std::move(schemas)}});
}

struct Component {
  const char* name;
  const std::vector<Field>& fields;
  bool is_request;
};

std::vector<Component> components() {
  return {
      {"CompletionRequest", completion_fields().fields(), true},
      {"ChatCompletionRequest", chat_completion_fields().fields(), true},
      {"TokenizeRequest", tokenize_fields().fields(), true},
      {"DetokenizeRequest", detokenize_fields().fields(), true},
      {"ApplyTemplateRequest", apply_template_fields().fields(), true},
      {"Error", error_answer_fields(), false},
      {"Completion", completion_answer_fields(), false},
      {"ChatCompletion", chat_answer_fields(), false},
      {"ChatCompletionChunk", chat_chunk_fields(), false},
      {"Model", model_answer_fields(), false},
      {"ModelList", models_answer_fields(), false},
      {"Version", version_answer_fields(), false},
      {"Props", props_answer_fields(), false},
      {"TokenizerInfo", tokenizer_info_answer_fields(), false},
      {"Tokens", tokenize_answer_fields(), false},
      {"Text", detokenize_answer_fields(), false},
      {"RenderedPrompt", apply_template_answer_fields(), false},
  };
}

struct Operation {
  const char* path;
  const char* method;
  const char* id;
  const char* summary;
  const char* request;       // component; nullptr: no body
  const char* answer;        // component; nullptr: plain text or any JSON
  const char* chunk;         // component of the events of a stream; nullptr: there is none
  const char* content_type;  // of the answer
};

constexpr const char* kJson = "application/json";

constexpr std::array kOperations = {
    Operation{"/v1/models", "get", "listModels", "The served models.", nullptr, "ModelList", nullptr, kJson},
    Operation{"/v1/models/{model}", "get", "getModel", "One of them.", nullptr, "Model", nullptr, kJson},
    Operation{"/v1/completions", "post", "createCompletion", "Continues texts or token ids.", "CompletionRequest",
              "Completion", "Completion", kJson},
    Operation{"/v1/chat/completions", "post", "createChatCompletion", "Answers a conversation.",
              "ChatCompletionRequest", "ChatCompletion", "ChatCompletionChunk", kJson},
    Operation{"/tokenizer_info", "get", "getTokenizerInfo", "The tokenizer's special tokens.", nullptr, "TokenizerInfo",
              nullptr, kJson},
    Operation{"/tokenize", "post", "tokenize", "A text or a chat as token ids.", "TokenizeRequest", "Tokens", nullptr,
              kJson},
    Operation{"/detokenize", "post", "detokenize", "Token ids as text.", "DetokenizeRequest", "Text", nullptr, kJson},
    Operation{"/apply-template", "post", "applyTemplate", "A chat as the prompt that the model sees.",
              "ApplyTemplateRequest", "RenderedPrompt", nullptr, kJson},
    Operation{"/version", "get", "getVersion", "What this server was built from.", nullptr, "Version", nullptr, kJson},
    Operation{"/props", "get", "getProps", "Effective defaults, limits, kernels and gates.", nullptr, "Props", nullptr,
              kJson},
    Operation{"/health", "get", "getHealth", "200 once the model is loaded, 503 before.", nullptr, nullptr, nullptr,
              kJson},
    Operation{"/metrics", "get", "getMetrics", "Metrics in the text format of Prometheus.", nullptr, nullptr, nullptr,
              "text/plain"},
    Operation{"/openapi.json", "get", "getOpenApi", "This document.", nullptr, nullptr, nullptr, kJson},
};

Json reference(std::string_view component) {
  return Json::object({{"$ref", text("#/components/schemas/" + std::string(component))}});
}

Json content(std::string_view media_type, Json schema) {
  return Json::object({{std::string(media_type), Json::object({{"schema", std::move(schema)}})}});
}

Json answer_json(const Operation& operation) {
  const bool is_json = operation.content_type == std::string_view(kJson);
  Json schema = operation.answer != nullptr ? reference(operation.answer) : is_json ? Json::object() : typed("string");
  Json media = content(operation.content_type, std::move(schema));
  if (operation.chunk != nullptr) {
    Json events = typed("string");
    events.set("description", text("With `stream`: events `data: {…}`, each a " + std::string(operation.chunk) +
                                   ", and at last `data: [DONE]`. An error comes as an event with an Error."));
    media.set("text/event-stream", Json::object({{"schema", std::move(events)}}));
  }
  return Json::object({{"description", text("Success.")}, {"content", std::move(media)}});
}

Json operation_json(const Operation& operation) {
  Json json = Json::object({{"operationId", text(operation.id)}, {"summary", text(operation.summary)}});
  if (std::string_view(operation.path).ends_with("{model}")) {
    json.set("parameters", Json::array({Json::object({{"name", text("model")},
                                                      {"in", text("path")},
                                                      {"required", Json::boolean(true)},
                                                      {"schema", typed("string")}})}));
  }
  if (operation.request != nullptr) {
    json.set("requestBody", Json::object({{"required", Json::boolean(true)},
                                          {"content", content(kJson, reference(operation.request))}}));
  }
  Json refusal = Json::object({{"description", text("Refused, or failed: the status and `error.code` say why.")},
                               {"content", content(kJson, reference("Error"))}});
  json.set("responses", Json::object({{"200", answer_json(operation)}, {"default", std::move(refusal)}}));
  return json;
}

}  // namespace

Json schema_json(const Type& type, const Rules& rules) {
  switch (type.kind) {
    case Type::Kind::kAny: return Json::object();
    case Type::Kind::kBoolean: return typed("boolean");
    case Type::Kind::kInteger: return integer_schema(type.least, type.most);
    case Type::Kind::kNumber: return number_schema(type);
    case Type::Kind::kString: return string_schema(type);
    case Type::Kind::kTokenId: return integer_schema(0, static_cast<uint64_t>(rules.num_tokens - 1));
    case Type::Kind::kArray: {
      Json schema = sized(typed("array"), type, "Items");
      schema.set("items", schema_json(type.parts.front(), rules));
      return schema;
    }
    case Type::Kind::kMap: return map_schema(type, rules);
    case Type::Kind::kObject: return object_schema(*type.fields, rules);
    case Type::Kind::kOneOf: return one_of_schema(type, rules);
  }
  return {};
}

Json openapi_json(const Defaults& defaults, std::string_view version) {
  Json schemas = Json::object();
  for (const Component& component : components()) {
    Rules rules = rules_of(defaults);
    rules.lenient = rules.lenient && component.is_request;
    schemas.set(component.name, object_schema(component.fields, rules));
  }
  Json paths = Json::object();
  for (const Operation& operation : kOperations) {
    paths.set(operation.path, Json::object({{operation.method, operation_json(operation)}}));
  }
  Json bearer = Json::object({{"type", text("http")}, {"scheme", text("bearer")}});
  return Json::object(
      {{"openapi", text("3.1.0")},
       {"info", Json::object({{"title", text("Kipp")},
                              {"version", text(version)},
                              {"description", text("Fields that are unknown or of another type are refused by name.")},
                              {"license", Json::object({{"name", text("MIT")}})}})},
       {"security", Json::array({Json::object(), Json::object({{"key", Json::array()}})})},
       {"paths", std::move(paths)},
       {"components", Json::object({{"securitySchemes", Json::object({{"key", std::move(bearer)}})},
                                    {"schemas", std::move(schemas)}})}});
}

}  // namespace kipp::openai
