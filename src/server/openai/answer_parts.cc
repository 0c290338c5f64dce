// Usage, timings, the frame of answers and of server-sent events.
#include "server/openai/answer_parts.h"

#include <utility>

#include "base/check.h"

namespace kipp::openai {
namespace {

double per(double amount, double count) {
  return count > 0.0 ? amount / count : 0.0;
}

}  // namespace

Json usage_json(const Usage& usage) {
  const auto number = [](int64_t value) { return Json::number(value); };
  return Json::object(
      {{"prompt_tokens", number(usage.prompt_tokens)},
       {"completion_tokens", number(usage.completion_tokens)},
       {"total_tokens", number(usage.prompt_tokens + usage.completion_tokens)},
       {"prompt_tokens_details", Json::object({{"cached_tokens", number(usage.cached_tokens)}})},
       {"completion_tokens_details", Json::object({{"reasoning_tokens", number(usage.reasoning_tokens)}})}});
}

Json timings_json(const Timings& timings) {
  constexpr double kMsPerSecond = 1000.0;
  const auto num_prompt = static_cast<double>(timings.prompt_tokens);
  const auto num_predicted = static_cast<double>(timings.predicted_tokens);
  return Json::object(
      {{"cache_n", Json::number(timings.cached_tokens)},
       {"prompt_n", Json::number(timings.prompt_tokens)},
       {"prompt_ms", Json::number(timings.prompt_ms)},
       {"prompt_per_token_ms", Json::number(per(timings.prompt_ms, num_prompt))},
       {"prompt_per_second", Json::number(per(num_prompt * kMsPerSecond, timings.prompt_ms))},
       {"predicted_n", Json::number(timings.predicted_tokens)},
       {"predicted_ms", Json::number(timings.predicted_ms)},
       {"predicted_per_token_ms", Json::number(per(timings.predicted_ms, num_predicted))},
       {"predicted_per_second", Json::number(per(num_predicted * kMsPerSecond, timings.predicted_ms))}});
}

Json answer_head(const Identity& identity, std::string_view object, Json choices) {
  return Json::object({{"id", Json::string(identity.id)},
                       {"object", Json::string(std::string(object))},
                       {"created", Json::number(identity.created)},
                       {"model", Json::string(identity.model)},
                       {"system_fingerprint", Json::string(identity.system_fingerprint)},
                       {"choices", std::move(choices)}});
}

Json chunk_head(const StreamOptions& options, std::string_view object, Json choices, const Usage& usage) {
  Json chunk = answer_head(options.identity, object, std::move(choices));
  if (options.include_usage) {
    chunk.set("usage", options.continuous_usage ? usage_json(usage) : Json());
  }
  return chunk;
}

std::string_view finish_name(Finish finish, bool has_calls) {
  switch (finish) {
    case Finish::kStop: return has_calls ? "tool_calls" : "stop";
    case Finish::kLength: return "length";
    case Finish::kAbort: return "abort";
    case Finish::kError: return "error";
  }
  return "";
}

StreamOptions stream_options(Identity identity, const Generation& generation) {
  return {.identity = std::move(identity),
          .logprobs = generation.num_logprobs >= 0,
          .include_usage = generation.include_usage,
          .continuous_usage = generation.continuous_usage};
}

std::string sse_event(const Json& data) {
  return "data: " + write_json(data) + "\n\n";  // the writer escapes line feeds
}

void TextFrame::make(const Json& chunk) {
  std::string mark;
  append_json_string(mark, kText);
  std::string event = sse_event(chunk);
  const size_t place = event.rfind(mark);
  KIPP_CHECK(place != std::string::npos);
  after_ = event.substr(place + mark.size());
  event.resize(place);
  before_ = std::move(event);
}

std::string TextFrame::event(std::string_view text) const {
  std::string event;
  event.reserve(before_.size() + text.size() + after_.size() + 16);  // quotation marks, and some letters to escape
  event += before_;
  append_json_string(event, text);
  return event += after_;
}

std::string sse_error(const ApiError& error) {
  return sse_event(error_json(error));
}

std::string stream_usage(const StreamOptions& options, bool is_chat, const Usage& usage) {
  if (!options.include_usage) {
    return {};
  }
  Json chunk = answer_head(options.identity, is_chat ? kChatChunkObject : kCompletionObject, Json::array());
  chunk.set("usage", usage_json(usage));
  return sse_event(chunk);
}

}  // namespace kipp::openai
