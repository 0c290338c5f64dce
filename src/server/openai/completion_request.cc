// POST /v1/completions. Contract in requests.h.
#include <utility>

#include <fmt/format.h>

#include "server/openai/request_fields.h"

namespace kipp::openai {
namespace {

std::vector<int32_t> ids_of(const Json& array) {
  std::vector<int32_t> ids;
  ids.reserve(array.items().size());
  for (const Json& id : array.items()) {
    ids.push_back(static_cast<int32_t>(id.as_int64().value_or(0)));
  }
  return ids;
}

// A text, ids, or a list of either: a list of numbers is one prompt.
std::vector<CompletionRequest::Prompt> prompts_of(const Json& value) {
  if (value.is_string()) {
    return {value.as_string()};
  }
  if (value.items().front().is_number()) {
    return {ids_of(value)};
  }
  std::vector<CompletionRequest::Prompt> prompts;
  for (const Json& item : value.items()) {
    if (item.is_string()) {
      prompts.emplace_back(item.as_string());
    } else {
      prompts.emplace_back(ids_of(item));
    }
  }
  return prompts;
}

Type prompt_type() {
  const Type ids = labelled(array(token_id(), 1), "an array of token ids");
  return one_of({string(1), labelled(array(string(1), 1), "an array of strings"), ids,
                 labelled(array(ids, 1), "an array of arrays of token ids, none of them empty")});
}

void add_own_fields(FieldTable<CompletionRequest>& table) {
  table.add(model_field(), [](const Json& value, CompletionRequest& to) { to.model = value.as_string(); })
      .add({"prompt", prompt_type(), "What to continue: a text, token ids, or several of either.", true},
           [](const Json& value, CompletionRequest& to) { to.prompts = prompts_of(value); })
      .add(plain_field(), [](const Json& value, CompletionRequest& to) { to.plain = value.as_bool(); })
      .add({"echo", boolean(), "The answer begins with the prompt; with `logprobs` also with its log-probabilities.",
            false, Json::boolean(false)},
           [](const Json& value, CompletionRequest& to) { to.echo = value.as_bool(); })
      .add({"logprobs", integer(0, 20),
            "Log-probabilities of the chosen tokens (0) and of so many best ones at each place."},
           [](const Json& value, CompletionRequest& to) {
             to.generation.num_logprobs = static_cast<int32_t>(value.as_int64().value_or(0));
           });
}

}  // namespace

const FieldTable<CompletionRequest>& completion_fields() {
  static const FieldTable<CompletionRequest> table = [] {
    FieldTable<CompletionRequest> fields;
    add_own_fields(fields);
    fields.include(generation_fields(), &CompletionRequest::generation);
    fields.add(unsupported_field("best_of", {Json::number(int64_t{1})}));
    fields.add(unsupported_field("suffix", {Json::string("")}));
    return fields;
  }();
  return table;
}

ApiResult<CompletionRequest> parse_completion_request(std::string_view body, const Defaults& defaults) {
  const auto object = checked_body(body, completion_fields().fields(), defaults);
  if (!object) {
    return tl::unexpected<ApiError>(object.error());
  }
  CompletionRequest request;
  request.generation.sampling = defaults.sampling;
  request.generation.max_tokens = defaults.completion_tokens;
  completion_fields().store(*object, request);
  if (const auto checked = check_generation(request.generation, request.prompts.size(), defaults); !checked) {
    return tl::unexpected<ApiError>(checked.error());
  }
  return request;
}

}  // namespace kipp::openai
