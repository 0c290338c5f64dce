// Encodes the prompt, settles the options from line, flags and artifact, runs generate() and picks candidates.
#include "cli/request.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/draw_seed.h"
#include "cli/fields.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "engine/stop_matcher.h"
#include "gguf/model_file.h"
#include "kipp/chat.h"
#include "sampling/logprobs.h"

namespace kipp::cli {
namespace {

constexpr std::array<std::string_view, 7> kOwnFields = {"prompt", "messages", "plain", "decode",
                                                        "top",    "logprobs", "stop"};
constexpr auto kRequestFields = joined(kOwnFields, joined(kChatFields, kSamplingFields));
constexpr int32_t kMaxLogprobs = 20;

tl::unexpected<Error> invalid(std::string message) {
  return make_error(ErrorCode::kInvalidArgument, std::move(message));
}

Result<std::vector<int32_t>> encode_chat(const Model& model, const ChatRequest& chat) {
  KIPP_ASSIGN(RenderedPrompt rendered, render_chat(chat, model.info().checkpoint->variant, model.tokenizer()));
  return std::move(rendered.ids);
}

Result<std::vector<int32_t>> encode_raw(const Model& model, std::string_view prompt, bool plain) {
  return model.tokenizer().encode(prompt, {.special_tokens = plain ? SpecialTokens::kPlain : SpecialTokens::kParse});
}

// The line of a raw prompt: fields that only a chat has are refused.
Result<std::vector<int32_t>> encode_raw_line(const Model& model, const Json& object, std::string_view prompt,
                                             bool plain) {
  for (const std::string_view name : kChatFields) {
    if (object.find_value(name) != nullptr) {
      return invalid(fmt::format("found field \"{}\": expected \"messages\" beside it, or --chat", name));
    }
  }
  return encode_raw(model, prompt, plain);
}

Result<std::vector<int32_t>> encode_line(const Model& model, const Json& object, const RequestDefaults& defaults) {
  KIPP_ASSIGN(const std::optional<std::string> prompt, string_field(object, "prompt"));
  KIPP_ASSIGN(const std::optional<bool> plain, bool_field(object, "plain"));
  const bool has_messages = object.find_value("messages") != nullptr;
  if (prompt.has_value() == has_messages) {
    return invalid(has_messages ? "expected one of \"prompt\" and \"messages\", found both"
                                : "expected a \"prompt\" or \"messages\", found neither");
  }
  if (prompt && !defaults.apply_template) {
    return encode_raw_line(model, object, *prompt, plain.value_or(defaults.plain));
  }
  if (plain) {
    return invalid("found field \"plain\": expected only with a raw \"prompt\"; text in a chat is always plain");
  }
  Json with_messages = object;
  if (prompt) {
    with_messages.set("messages", messages_of_prompt(*prompt));
  }
  KIPP_ASSIGN(const ChatRequest chat, chat_of_json(with_messages, defaults.chat, ContentRule::kTextParts));
  return encode_chat(model, chat);
}

Request new_request(const Model& model, const RequestDefaults& defaults, const SamplingChoices& sampling) {
  Request request;
  request.options = generate_options(model, defaults, sampling);
  request.num_top = defaults.num_top;
  return request;
}

// Runs one part of a request; text and interrupts pass through the events.
Result<GenerateResult> run_part(Model& model, Session& session, std::span<const int32_t> prompt,
                                const GenerateOptions& options, const RequestEvents& events,
                                std::vector<SampledToken>& sampled) {
  Result<void> shown;
  Progress progress("prompt", prompt.size(), "tokens");
  const auto show = [&](std::string_view text) {
    if (events.on_text && !text.empty()) {
      shown = events.on_text(text);
    }
  };
  auto result = generate(model, session, prompt, options, [&](const GenerateStep* step) {
    if (step == nullptr) {
      progress.update(static_cast<size_t>(session.length()));
      return !interrupted();
    }
    if (options.num_logprobs >= 0) {
      sampled.push_back(step->token);
    }
    show(step->text);
    return shown.has_value() && !interrupted();
  });
  if (result && shown) {
    show(result->last_text);
  }
  KIPP_TRY(shown);
  return result;
}

}  // namespace

GenerateOptions generate_options(const Model& model, const RequestDefaults& defaults, const SamplingChoices& sampling) {
  const ArtifactInfo& info = model.info();
  GenerateOptions options;
  options.sampling = recorded_sampling(info.sampling);
  apply(sampling, options.sampling);
  options.stop_token_ids = info.stop_token_ids;
  options.max_tokens = defaults.decode;
  options.num_logprobs = defaults.num_logprobs;
  options.stop = defaults.stop;
  return options;
}

Result<Request> request_of_prompt(const Model& model, std::string_view prompt, const RequestDefaults& defaults) {
  Request request = new_request(model, defaults, defaults.sampling);
  if (defaults.apply_template) {
    const Json object = Json::object({{"messages", messages_of_prompt(prompt)}});
    KIPP_ASSIGN(const ChatRequest chat, chat_of_json(object, defaults.chat, ContentRule::kTextParts));
    KIPP_ASSIGN(request.prompt, encode_chat(model, chat));
    request.is_chat = true;
  } else {
    KIPP_ASSIGN(request.prompt, encode_raw(model, prompt, defaults.plain));
  }
  request.options.seed = defaults.sampling.seed ? *defaults.sampling.seed : draw_seed();
  request.generate = request.num_top == 0 || defaults.decode >= 0;
  return request;
}

Result<Request> request_of_json(const Model& model, const Json& object, const RequestDefaults& defaults,
                                uint64_t seed) {
  KIPP_TRY(check_field_names(object, kRequestFields));
  KIPP_ASSIGN(const SamplingChoices said, read_sampling_fields(object));
  const SamplingChoices sampling = layered(defaults.sampling, said);
  Request request = new_request(model, defaults, sampling);
  request.options.seed = sampling.seed.value_or(seed);
  KIPP_ASSIGN(const std::optional<int32_t> decode, int_field(object, "decode"));
  KIPP_ASSIGN(const std::optional<int32_t> num_top, int_field(object, "top"));
  for (const auto& [name, value] : {std::pair("decode", decode), std::pair("top", num_top)}) {
    if (value.value_or(0) < 0) {
      return wrong_field(name, "0 or more", object.find(name));
    }
  }
  KIPP_ASSIGN(const std::optional<int32_t> num_logprobs, int_field(object, "logprobs"));
  if (num_logprobs && (*num_logprobs < 0 || *num_logprobs > kMaxLogprobs)) {
    return wrong_field("logprobs", fmt::format("0 to {}", kMaxLogprobs), object.find("logprobs"));
  }
  KIPP_ASSIGN(const auto stop, stop_field(object));
  request.options.num_logprobs = num_logprobs.value_or(defaults.num_logprobs);
  request.options.stop = stop.value_or(defaults.stop);
  request.options.max_tokens = decode.value_or(defaults.decode);
  request.num_top = num_top.value_or(defaults.num_top);
  request.generate = request.num_top == 0 || request.options.max_tokens >= 0;
  request.is_chat = defaults.apply_template || object.find_value("messages") != nullptr;
  KIPP_ASSIGN(request.prompt, encode_line(model, object, defaults));
  return request;
}

Result<Answer> run_request(Model& model, Session& session, const Request& request, const RequestEvents& events) {
  session.reset();
  Answer answer;
  GenerateOptions evaluate_only = request.options;
  evaluate_only.max_tokens = 0;
  KIPP_ASSIGN(answer.result, run_part(model, session, request.prompt, evaluate_only, events, answer.sampled));
  if (answer.result.finish_reason == FinishReason::kCancelled) {
    return answer;
  }
  if (request.num_top > 0) {
    KIPP_ASSIGN(answer.top, best_candidates(session.logits(), model.tokenizer().num_tokens(), request.num_top));
    if (events.on_top) {
      KIPP_TRY(events.on_top(answer.top));
    }
  }
  if (request.generate) {
    const GenerateTimings prefill = answer.result.timings;
    KIPP_ASSIGN(answer.result, run_part(model, session, {}, request.options, events, answer.sampled));
    answer.result.timings.prompt_tokens = prefill.prompt_tokens;
    answer.result.timings.prefill_seconds = prefill.prefill_seconds;
  }
  return answer;
}

Result<std::optional<std::vector<std::string>>> stop_field(const Json& object) {
  const Json* field = object.find_value("stop");
  if (field == nullptr) {
    return std::nullopt;
  }
  const std::span<const Json> items = field->is_array() ? std::span(field->items()) : std::span(field, 1);
  std::vector<std::string> stop;
  for (const Json& item : items) {
    if (!item.is_string()) {
      const std::string name = field->is_array() ? fmt::format("stop[{}]", stop.size()) : "stop";
      return wrong_field(name, field->is_array() ? "a string" : "a string or an array of strings", &item);
    }
    stop.push_back(item.as_string());
  }
  KIPP_TRY(validate_stop_strings(stop));
  return stop;
}

Result<std::vector<Candidate>> best_candidates(std::span<const float> logits, int32_t num_tokens, int32_t count) {
  KIPP_TRY(check_finite(logits, num_tokens));
  std::vector<Candidate> candidates;
  candidates.reserve(static_cast<size_t>(num_tokens));
  for (int32_t id = 0; id < num_tokens; ++id) {
    candidates.push_back({.id = id, .logit = logits[static_cast<size_t>(id)]});
  }
  const auto num_kept = std::min(candidates.size(), static_cast<size_t>(count));
  std::ranges::partial_sort(
      candidates, candidates.begin() + static_cast<std::ptrdiff_t>(num_kept),
      [](const Candidate& a, const Candidate& b) { return a.logit != b.logit ? a.logit > b.logit : a.id < b.id; });
  candidates.resize(num_kept);
  return candidates;
}

Result<std::string> quoted_piece(const Tokenizer& tokenizer, int32_t id) {
  KIPP_ASSIGN(const std::string_view bytes, tokenizer.token_bytes(id));
  KIPP_ASSIGN(const std::string text, tokenizer.decode(std::span(&id, 1)));
  if (text == bytes) {  // whole characters
    return write_json(Json::string(text));
  }
  std::string quoted = "\"";
  for (const char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    if (value >= 0x80 || value < 0x20 || byte == '"' || byte == '\\') {
      quoted += fmt::format("\\x{:02x}", value);
    } else {
      quoted += byte;
    }
  }
  return quoted + '"';
}

}  // namespace kipp::cli
