// Models, version, properties, tokens and templates. Contract in answers.h.
#include <utility>

#include <fmt/format.h>

#include "base/json_values.h"
#include "server/openai/answers.h"
#include "server/openai/schema.h"

namespace kipp::openai {
namespace {

Json number(int64_t value) {
  return Json::number(value);
}

// The fewest digits that name a float: 0.6.
Json shortest_json(float value) {
  return Json::number_literal(fmt::format("{}", value));
}

// Under the names of a request's fields.
Json sampling_json(const SamplingParams& sampling) {
  Json bias = Json::object();
  for (const auto& [id, value] : sampling.logit_bias) {
    bias.set(fmt::format("{}", id), shortest_json(value));
  }
  return Json::object({{"temperature", shortest_json(sampling.temperature)},
                       {"top_p", shortest_json(sampling.top_p)},
                       {"top_k", number(sampling.top_k)},
                       {"min_p", shortest_json(sampling.min_p)},
                       {"presence_penalty", shortest_json(sampling.presence_penalty)},
                       {"frequency_penalty", shortest_json(sampling.frequency_penalty)},
                       {"repetition_penalty", shortest_json(sampling.repetition_penalty)},
                       {"logit_bias", std::move(bias)}});
}

Json defaults_json(const Defaults& defaults) {
  Json json = sampling_json(defaults.sampling);
  json.set("n", number(1));
  json.set("max_tokens", Json());
  json.set("completions_max_tokens", defaults.completion_tokens ? number(*defaults.completion_tokens) : Json());
  return json;
}

Json limits_json(const Defaults& defaults) {
  return Json::object({{"context", number(defaults.context)},
                       {"num_tokens", number(defaults.num_tokens)},
                       {"choices", number(defaults.max_choices)},
                       {"body_bytes", number(static_cast<int64_t>(defaults.json.max_bytes))},
                       {"json_depth", number(static_cast<int64_t>(defaults.json.max_depth))},
                       {"json_values", number(static_cast<int64_t>(defaults.json.max_values))}});
}

Json gate_json(const GateStatus& gate) {
  return Json::object({{"gate", Json::string(gate.gate)},
                       {"status", Json::string(gate.status)},
                       {"record", gate.record.empty() ? Json() : Json::string(gate.record)}});
}

}  // namespace

Json model_json(const ModelCard& model) {
  return Json::object({{"id", Json::string(model.id)},
                       {"object", Json::string("model")},
                       {"created", number(model.created)},
                       {"owned_by", Json::string("kipp")},
                       {"max_model_len", number(model.context)}});
}

Json models_json(std::span<const ModelCard> models) {
  return Json::object({{"object", Json::string("list")}, {"data", array_json(models, model_json)}});
}

ApiError no_such_model(std::string_view id) {
  const Json name = Json::string(std::string(id));
  return {.status = 404,
          .type = "not_found_error",
          .code = "model_not_found",
          .param = "model",
          .message = fmt::format("model: {} is not served; GET /v1/models lists what is", found_text(&name))};
}

Json version_json(const BuildInfo& build) {
  return Json::object({{"version", Json::string(build.version)},
                       {"commit", Json::string(build.commit)},
                       {"compiler", Json::string(build.compiler)}});
}

Json props_json(const Props& props, const Defaults& defaults) {
  Json kernels = Json::object();
  for (const auto& [name, kernel] : props.kernels) {
    kernels.set(name, Json::string(kernel));
  }
  return Json::object({{"model", Json::string(props.model)},
                       {"checkpoint", Json::string(props.checkpoint)},
                       {"revision", Json::string(props.revision)},
                       {"variant", Json::string(std::string(variant_name(defaults.variant)))},
                       {"scheme", Json::string(props.scheme)},
                       {"artifact_sha256", Json::string(props.artifact_sha256)},
                       {"synthetic", Json::boolean(props.synthetic)},
                       {"backend", Json::string(props.backend)},
                       {"max_sequences", number(props.max_sequences)},
                       {"lenient", Json::boolean(defaults.lenient)},
                       {"default_generation_settings", defaults_json(defaults)},
                       {"limits", limits_json(defaults)},
                       {"kernels", std::move(kernels)},
                       {"gates", array_json(props.gates, gate_json)},
                       {"build", version_json(props.build)}});
}

Json tokenizer_info_json(const TokenizerInfo& info) {
  return Json::object({{"tokenizer_class", Json::string("Qwen2Tokenizer")},
                       {"bos_token", Json()},
                       {"eos_token", Json::string(info.eos_token)},
                       {"pad_token", Json::string(info.pad_token)},
                       {"model_max_length", number(info.context)}});
}

Json tokenize_json(std::span<const int32_t> ids, int32_t context, const std::vector<std::string>* token_strs) {
  Json json = Json::object({{"count", number(static_cast<int64_t>(ids.size()))},
                            {"max_model_len", number(context)},
                            {"tokens", ids_json(ids)}});
  if (token_strs != nullptr) {
    json.set("token_strs", array_json(*token_strs, Json::string));
  }
  return json;
}

Json detokenize_json(std::string text) {
  return Json::object({{"prompt", Json::string(std::move(text))}});
}

Json apply_template_json(const RenderedPrompt& prompt) {
  return Json::object({{"prompt", Json::string(prompt.text)}, {"tokens", ids_json(prompt.ids)}});
}

}  // namespace kipp::openai
