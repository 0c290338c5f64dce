// Answers of generations. Contract in answer_fields.h.
#include "server/openai/answer_fields.h"

#include <limits>

namespace kipp::openai {
namespace {

Type any_number() {
  return number(std::numeric_limits<float>::lowest(), std::numeric_limits<double>::infinity());
}

Type count() {
  return integer(0, std::numeric_limits<int64_t>::max());
}

const std::vector<Field>& usage_fields() {
  static const std::vector<Field> prompt = {{"cached_tokens", count(), "Not evaluated again.", true}};
  static const std::vector<Field> completion = {{"reasoning_tokens", count(), "Between the think tokens.", true}};
  static const std::vector<Field> fields = {
      {"prompt_tokens", count(), "Each prompt once, whatever `n` is.", true},
      {"completion_tokens", count(), "Of all choices.", true},
      {"total_tokens", count(), "The sum.", true},
      {"prompt_tokens_details", object(prompt), "", true},
      {"completion_tokens_details", object(completion), "", true},
  };
  return fields;
}

const std::vector<Field>& timings_fields() {
  static const std::vector<Field> fields = {
      {"cache_n", count(), "Prompt tokens from the cache.", true},
      {"prompt_n", count(), "Prompt tokens that were evaluated.", true},
      {"prompt_ms", any_number(), "", true},
      {"prompt_per_token_ms", any_number(), "", true},
      {"prompt_per_second", any_number(), "", true},
      {"predicted_n", count(), "Tokens of the output.", true},
      {"predicted_ms", any_number(), "", true},
      {"predicted_per_token_ms", any_number(), "", true},
      {"predicted_per_second", any_number(), "", true},
  };
  return fields;
}

Type finish_reason() {
  return choice({"stop", "length", "tool_calls", "abort", "error"});
}

const std::vector<Field>& completion_logprobs_fields() {
  // The first token of an echoed prompt has no log-probability: null.
  static const std::vector<Field> fields = {
      {"tokens", array(string()), "Texts; `bytes:\\xf0` where a token is no whole character.", true},
      {"token_logprobs", array(any_value()), "Numbers; null for the first token of a prompt.", true},
      {"top_logprobs", array(any_value()), "Objects of text to log-probability, the chosen token's too; or null.",
       true},
      {"text_offset", array(count()), "Where each token begins in `text`, in characters.", true},
  };
  return fields;
}

std::vector<Field> chat_logprob_entry() {
  return {
      {"token", string(), "Its text; `bytes:\\xf0` where it is no whole character.", true},
      {"logprob", any_number(), "", true},
      {"bytes", array(integer(0, 255)), "Its UTF-8 bytes.", true},
  };
}

const std::vector<Field>& chat_logprobs_fields() {
  static const std::vector<Field> best = chat_logprob_entry();
  static const std::vector<Field> token = [] {
    std::vector<Field> fields = chat_logprob_entry();
    fields.push_back({"top_logprobs", array(object(best)), "The best tokens at this place.", true});
    return fields;
  }();
  static const std::vector<Field> fields = {
      {"content", array(object(token)), "Every token of the answer, reasoning and calls included.", true},
      {"refusal", any_value(), "Always null."},
  };
  return fields;
}

std::vector<Field> head_fields(std::string object_name, const std::vector<Field>& choice, bool is_chunk) {
  return {
      {"id", string(1), "The same on every chunk.", true},
      {"object", kipp::openai::choice({std::move(object_name)}), "", true},
      {"created", count(), "Seconds since 1970.", true},
      {"model", string(), "", true},
      {"system_fingerprint", string(), "Build and artifact.", true},
      {"choices", array(object(choice)), is_chunk ? "Empty in the chunk that has the usage." : "", true},
      {"usage", object(usage_fields()), is_chunk ? "As `stream_options` asks." : "", !is_chunk},
      {"timings", object(timings_fields()), is_chunk ? "In the last chunk of a choice." : ""},
  };
}

const std::vector<Field>& tool_call_fields() {
  static const std::vector<Field> function = {
      {"name", string(), "", true},
      {"arguments", string(), "JSON text, letter for letter as the model wrote it.", true},
  };
  static const std::vector<Field> fields = {
      {"id", string(1), "", true},
      {"type", choice({"function"}), "", true},
      {"function", object(function), "", true},
  };
  return fields;
}

const std::vector<Field>& message_fields() {
  static const std::vector<Field> fields = {
      {"role", choice({"assistant"}), "", true},
      {"content", string(), "Empty where there is none.", true},
      {"reasoning_content", string(), "Where there is any."},
      {"tool_calls", array(object(tool_call_fields()), 1), "Where there are any."},
  };
  return fields;
}

const std::vector<Field>& delta_fields() {
  static const std::vector<Field> function = {
      {"name", string(), "In the first piece of a call."},
      {"arguments", string(), "A piece.", true},
  };
  static const std::vector<Field> call = {
      {"index", count(), "Which call.", true},
      {"id", string(1), "In the first piece of a call."},
      {"type", choice({"function"}), "In the first piece of a call."},
      {"function", object(function), "", true},
  };
  static const std::vector<Field> fields = {
      {"role", choice({"assistant"}), "In the first chunk alone."},
      {"content", string(), "A piece."},
      {"reasoning_content", string(), "A piece."},
      {"tool_calls", array(object(call), 1, 1), "A piece of one."},
  };
  return fields;
}

}  // namespace

const std::vector<Field>& error_answer_fields() {
  static const std::vector<Field> error = {
      {"message", string(1), "What was expected and what was found.", true},
      {"type", string(1), "", true},
      {"param", string(), "Path of the field, such as `messages[2].role`."},
      {"code", string(), "What kind, for programs."},
  };
  static const std::vector<Field> fields = {{"error", object(error), "", true}};
  return fields;
}

const std::vector<Field>& completion_answer_fields() {
  static const std::vector<Field> choice = {
      {"text", string(), "With `echo` it begins with the prompt.", true},
      {"index", count(), "Choice k of prompt i is i·n + k.", true},
      {"logprobs", object(completion_logprobs_fields()), ""},
      {"finish_reason", finish_reason(), "Null in all chunks but the last of a choice."},
  };
  static const std::vector<Field> fields = [] {
    std::vector<Field> head = head_fields("text_completion", choice, false);
    for (Field& field : head) {
      field.required = field.required && field.name != "usage";
    }
    return head;
  }();
  return fields;
}

const std::vector<Field>& chat_answer_fields() {
  static const std::vector<Field> choice = {
      {"index", count(), "", true},
      {"message", object(message_fields()), "", true},
      {"logprobs", object(chat_logprobs_fields()), ""},
      {"finish_reason", finish_reason(), "", true},
  };
  static const std::vector<Field> fields = head_fields("chat.completion", choice, false);
  return fields;
}

const std::vector<Field>& chat_chunk_fields() {
  static const std::vector<Field> choice = {
      {"index", count(), "", true},
      {"delta", object(delta_fields()), "", true},
      {"logprobs", object(chat_logprobs_fields()), ""},
      {"finish_reason", finish_reason(), "Null in all chunks but the last of a choice."},
  };
  static const std::vector<Field> fields = head_fields("chat.completion.chunk", choice, true);
  return fields;
}

}  // namespace kipp::openai
