// Answers about the server, tokens and templates. Contract in answer_fields.h.
#include <limits>

#include "server/openai/answer_fields.h"

namespace kipp::openai {
namespace {

Type count() {
  return integer(0, std::numeric_limits<int64_t>::max());
}

Type ids() {
  return array(count());
}

const std::vector<Field>& settings_fields() {
  const Type any = number(std::numeric_limits<float>::lowest(), std::numeric_limits<double>::infinity());
  static const std::vector<Field> fields = {
      {"temperature", any, "", true},
      {"top_p", any, "", true},
      {"top_k", count(), "", true},
      {"min_p", any, "", true},
      {"presence_penalty", any, "", true},
      {"frequency_penalty", any, "", true},
      {"repetition_penalty", any, "", true},
      {"logit_bias", map(any), "", true},
      {"n", count(), "", true},
      {"max_tokens", count(), "Of a chat; null: what the context holds."},
      {"completions_max_tokens", count(), "Of /v1/completions; null: what the context holds."},
  };
  return fields;
}

const std::vector<Field>& limits_fields() {
  static const std::vector<Field> fields = {
      {"context", count(), "Tokens of prompt and output.", true},
      {"num_tokens", count(), "Ids below it have a token.", true},
      {"choices", count(), "Prompts times `n` of one request.", true},
      {"body_bytes", count(), "", true},
      {"json_depth", count(), "", true},
      {"json_values", count(), "", true},
  };
  return fields;
}

const std::vector<Field>& gate_fields() {
  static const std::vector<Field> fields = {
      {"gate", string(), "", true},
      {"status", string(), "", true},
      {"record", string(), "Where its numbers are."},
  };
  return fields;
}

}  // namespace

const std::vector<Field>& model_answer_fields() {
  static const std::vector<Field> fields = {
      {"id", string(), "", true},
      {"object", choice({"model"}), "", true},
      {"created", count(), "Seconds since 1970.", true},
      {"owned_by", string(), "", true},
      {"max_model_len", count(), "Tokens of prompt and output.", true},
  };
  return fields;
}

const std::vector<Field>& models_answer_fields() {
  static const std::vector<Field> fields = {
      {"object", choice({"list"}), "", true},
      {"data", array(object(model_answer_fields())), "", true},
  };
  return fields;
}

const std::vector<Field>& version_answer_fields() {
  static const std::vector<Field> fields = {
      {"version", string(), "", true},
      {"commit", string(), "", true},
      {"compiler", string(), "", true},
  };
  return fields;
}

const std::vector<Field>& props_answer_fields() {
  static const std::vector<Field> fields = {
      {"model", string(), "", true},
      {"checkpoint", string(), "Its id in the registry.", true},
      {"revision", string(), "Of its repository.", true},
      {"variant", string(), "Whose chat template applies.", true},
      {"scheme", string(), "How the weights are stored.", true},
      {"artifact_sha256", string(), "", true},
      {"synthetic", boolean(), "The weights are random.", true},
      {"backend", string(), "", true},
      {"max_sequences", count(), "That run at the same time.", true},
      {"lenient", boolean(), "Unknown fields are ignored.", true},
      {"default_generation_settings", object(settings_fields()), "What a request that says nothing gets.", true},
      {"limits", object(limits_fields()), "Of a request.", true},
      {"kernels", map(string()), "The kernel that runs each operator.", true},
      {"gates", array(object(gate_fields())), "Verification gates of this artifact on this backend.", true},
      {"build", object(version_answer_fields()), "", true},
  };
  return fields;
}

const std::vector<Field>& tokenizer_info_answer_fields() {
  static const std::vector<Field> fields = {
      {"tokenizer_class", string(), "Whose tokens they are.", true},
      {"bos_token", string(), "Always null: no token begins a text."},
      {"eos_token", string(), "", true},
      {"pad_token", string(), "", true},
      {"model_max_length", count(), "Tokens of prompt and output.", true},
  };
  return fields;
}

const std::vector<Field>& tokenize_answer_fields() {
  static const std::vector<Field> fields = {
      {"count", count(), "", true},
      {"max_model_len", count(), "Tokens of prompt and output.", true},
      {"tokens", ids(), "", true},
      {"token_strs", array(string()), "Where they were asked for."},
  };
  return fields;
}

const std::vector<Field>& detokenize_answer_fields() {
  static const std::vector<Field> fields = {{"prompt", string(), "The text.", true}};
  return fields;
}

const std::vector<Field>& apply_template_answer_fields() {
  static const std::vector<Field> fields = {
      {"prompt", string(), "As the model sees it.", true},
      {"tokens", ids(), "", true},
  };
  return fields;
}

}  // namespace kipp::openai
