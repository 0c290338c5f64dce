// Answers of /v1/completions, whole and streamed. Contract in answers.h.
#include <iterator>
#include <utility>

#include "server/openai/answer_parts.h"

namespace kipp::openai {
namespace {

Json choice_json(std::string_view text, int32_t index, Json logprobs, Json finish_reason) {
  return Json::object({{"text", Json::string(std::string(text))},
                       {"index", Json::number(int64_t{index})},
                       {"logprobs", std::move(logprobs)},
                       {"finish_reason", std::move(finish_reason)}});
}

Json finish_json(Finish finish) {
  return Json::string(std::string(finish_name(finish, false)));
}

}  // namespace

Json completion_json(const Identity& identity, std::span<const CompletionChoice> choices, const Usage& usage,
                     const Timings* timings) {
  Json list = Json::array();
  int32_t index = 0;
  for (const CompletionChoice& choice : choices) {
    TextOffset offset;
    Json logprobs = choice.logprobs ? completion_logprobs_json(*choice.logprobs, offset) : Json();
    list.push_back(choice_json(choice.text, index++, std::move(logprobs), finish_json(choice.finish)));
  }
  Json answer = answer_head(identity, kCompletionObject, std::move(list));
  answer.set("usage", usage_json(usage));
  if (timings != nullptr) {
    answer.set("timings", timings_json(*timings));
  }
  return answer;
}

Json CompletionStream::chunk(std::string_view text, Json finish_reason, const Usage& usage) {
  const bool any = options_->logprobs && !held_.empty();
  Json logprobs = any ? completion_logprobs_json(std::exchange(held_, {}), offset_) : Json();
  Json choices = Json::array({choice_json(text, choice_, std::move(logprobs), std::move(finish_reason))});
  return chunk_head(*options_, kCompletionObject, std::move(choices), usage);
}

std::string CompletionStream::push(std::string_view text, std::vector<TokenLogprob> tokens, const Usage& usage) {
  held_.insert(held_.end(), std::make_move_iterator(tokens.begin()), std::make_move_iterator(tokens.end()));
  if (text.empty()) return {};
  if (!options_->has_plain_chunks()) return sse_event(chunk(text, Json(), usage));
  if (!frame_.is_made()) frame_.make(chunk(TextFrame::kText, Json(), usage));
  return frame_.event(text);
}

std::string CompletionStream::finish(Finish finish, const Usage& usage, const Timings* timings) {
  Json last = chunk({}, finish_json(finish), usage);
  if (timings != nullptr) {
    last.set("timings", timings_json(*timings));
  }
  return sse_event(last);
}

}  // namespace kipp::openai
