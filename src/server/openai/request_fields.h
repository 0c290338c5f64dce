// The tables of fields of every request, for the parsers and for the OpenAPI document; and the steps that the parsers
// share.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "server/openai/requests.h"
#include "server/openai/schema.h"

namespace kipp::openai {

// A chat's own fields: messages, tools, what the template is told. parse_chat_request() reads them.
const std::vector<Field>& chat_fields();
// Sampling, limits, stops, streaming: of both kinds of generation.
const FieldTable<Generation>& generation_fields();
const FieldTable<Generation>& stream_options_fields();

const FieldTable<CompletionRequest>& completion_fields();
const FieldTable<ChatCompletionRequest>& chat_completion_fields();
const FieldTable<TokenizeRequest>& tokenize_fields();
const FieldTable<DetokenizeRequest>& detokenize_fields();
const FieldTable<ApplyTemplateRequest>& apply_template_fields();

Field model_field();
// A field of the official schema that Kipp lacks, and the values of it that ask for nothing.
Field unsupported_field(std::string name, std::vector<Json> passes = {});
Field continue_final_message_field();
Field plain_field();

Rules rules_of(const Defaults& defaults);

// The body as a checked object; in a lenient server without what it ignores.
ApiResult<Json> checked_body(std::string_view body, const std::vector<Field>& fields, const Defaults& defaults);
ApiResult<void> check_model(const std::string& model, const Defaults& defaults);

// What else must hold for a checked body. Errors: ApiError naming the field.
ApiResult<ChatRequest> chat_of(const Json& body, const Defaults& defaults);
ApiResult<void> check_generation(const Generation& generation, size_t num_prompts, const Defaults& defaults);

}  // namespace kipp::openai
