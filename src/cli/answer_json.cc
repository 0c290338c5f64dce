// Text, ids and why it ended; what was asked for besides: candidates, log-probabilities, the message of a chat.
#include "cli/answer_json.h"

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/json_values.h"
#include "cli/message_json.h"
#include "kipp/chat_output.h"

namespace kipp::cli {
namespace {

Result<Json> top_json(const Tokenizer& tokenizer, const std::vector<Candidate>& top) {
  std::vector<Json> items;
  for (const Candidate& candidate : top) {
    KIPP_ASSIGN(std::string piece, quoted_piece(tokenizer, candidate.id));
    items.push_back(Json::object({{"id", Json::number(int64_t{candidate.id})},
                                  {"logit", float_json(candidate.logit)},
                                  {"piece", Json::string(std::move(piece))}}));
  }
  return Json::array(std::move(items));
}

Result<Json> logprob_json(const Tokenizer& tokenizer, int32_t id, float logprob) {
  KIPP_ASSIGN(std::string piece, quoted_piece(tokenizer, id));
  return Json::object(
      {{"id", Json::number(int64_t{id})}, {"logprob", float_json(logprob)}, {"piece", Json::string(std::move(piece))}});
}

Result<Json> logprobs_json(const Tokenizer& tokenizer, const std::vector<SampledToken>& sampled) {
  std::vector<Json> items;
  for (const SampledToken& token : sampled) {
    std::vector<Json> top;
    for (const auto& [id, logprob] : token.top_logprobs) {
      KIPP_ASSIGN(Json entry, logprob_json(tokenizer, id, logprob));
      top.push_back(std::move(entry));
    }
    KIPP_ASSIGN(Json item, logprob_json(tokenizer, token.id, token.logprob));
    item.set("top", Json::array(std::move(top)));
    items.push_back(std::move(item));
  }
  return Json::array(std::move(items));
}

}  // namespace

Result<Json> answer_json(const Model& model, const Request& request, const Answer& answer) {
  const GenerateResult& result = answer.result;
  const Tokenizer& tokenizer = model.tokenizer();
  Json json = Json::object({{"text", Json::string(result.text)},
                            {"ids", ids_json(result.ids)},
                            {"finish_reason", Json::string(finish_reason_name(result.finish_reason))}});
  if (!result.stop_string.empty()) {
    json.set("stop_string", Json::string(result.stop_string));
  }
  json.set("prompt_tokens", Json::number(static_cast<int64_t>(request.prompt.size())));
  if (request.options.sampling.temperature > 0.0F) {  // greedy draws nothing
    json.set("seed", Json::number_literal(fmt::format("{}", request.options.seed)));
  }
  if (request.num_top > 0) {
    KIPP_ASSIGN(Json top, top_json(tokenizer, answer.top));
    json.set("top", std::move(top));
  }
  if (request.options.num_logprobs >= 0) {
    KIPP_ASSIGN(Json logprobs, logprobs_json(tokenizer, answer.sampled));
    json.set("logprobs", std::move(logprobs));
  }
  if (request.is_chat && request.generate) {
    const OutputParserOptions options = {.in_reasoning = ends_in_reasoning(request.prompt, tokenizer)};
    KIPP_ASSIGN(const ChatMessage message, parse_output(result.ids, result.text, tokenizer, options));
    json.set("message", message_json(message));
  }
  return json;
}

}  // namespace kipp::cli
