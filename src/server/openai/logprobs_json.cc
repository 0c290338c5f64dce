// Log-probabilities in both of OpenAI's forms. Contract in answers.h.
#include <cmath>

#include <fmt/format.h>

#include "base/json_values.h"
#include "server/openai/answers.h"
#include "server/openai/schema.h"
#include "tokenizer/utf8.h"

namespace kipp::openai {
namespace {

// JSON has no infinity: a banned token's is as low as other servers write it.
Json logprob_number(float logprob) {
  constexpr float kLowest = -9999.0F;
  return float_json(std::isfinite(logprob) ? logprob : kLowest);
}

Json bytes_json(std::string_view bytes) {
  return array_json(bytes, [](char byte) { return Json::number(int64_t{static_cast<unsigned char>(byte)}); });
}

Json chat_entry(std::string_view bytes, float logprob) {
  return Json::object(
      {{"token", Json::string(token_text(bytes))}, {"logprob", logprob_number(logprob)}, {"bytes", bytes_json(bytes)}});
}

Json best_by_text(const TokenLogprob& token) {
  if (!token.logprob) {
    return {};
  }
  Json best = Json::object();
  for (const auto& [bytes, logprob] : token.top) {
    best.set(token_text(bytes), logprob_number(logprob));
  }
  best.set(token_text(token.bytes), logprob_number(*token.logprob));
  return best;
}

bool goes_on_with_a_character(std::string_view bytes) {
  return !bytes.empty() && num_characters(bytes.substr(0, 1)) == 0;
}

}  // namespace

Result<TokenLogprob> token_logprob(const SampledToken& token, const Tokenizer& tokenizer) {
  TokenLogprob result;
  KIPP_ASSIGN(const std::string_view bytes, tokenizer.token_bytes(token.id));
  result.bytes = bytes;
  result.logprob = token.logprob;
  result.in_text = !tokenizer.is_special(token.id);
  for (const auto& [id, logprob] : token.top_logprobs) {
    KIPP_ASSIGN(const std::string_view best, tokenizer.token_bytes(id));
    result.top.emplace_back(best, logprob);
  }
  return result;
}

std::string token_text(std::string_view bytes) {
  if (valid_utf8_prefix(bytes) == bytes.size()) {
    return std::string(bytes);
  }
  std::string text = "bytes:";
  for (const char byte : bytes) {
    text += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  }
  return text;
}

Json completion_logprobs_json(std::span<const TokenLogprob> tokens, TextOffset& offset) {
  Json texts = Json::array();
  Json logprobs = Json::array();
  Json best = Json::array();
  Json offsets = Json::array();
  for (const TokenLogprob& token : tokens) {
    const bool inside = goes_on_with_a_character(token.bytes) && offset.characters > 0;
    texts.push_back(Json::string(token_text(token.bytes)));
    logprobs.push_back(token.logprob ? logprob_number(*token.logprob) : Json());
    best.push_back(best_by_text(token));
    offsets.push_back(Json::number(offset.characters - (inside ? 1 : 0)));
    offset.characters += token.in_text ? static_cast<int64_t>(num_characters(token.bytes)) : 0;
  }
  return Json::object({{"tokens", std::move(texts)},
                       {"token_logprobs", std::move(logprobs)},
                       {"top_logprobs", std::move(best)},
                       {"text_offset", std::move(offsets)}});
}

Json chat_logprobs_json(std::span<const TokenLogprob> tokens) {
  Json content = array_json(tokens, [](const TokenLogprob& token) {
    Json entry = chat_entry(token.bytes, token.logprob.value_or(0.0F));
    entry.set("top_logprobs",
              array_json(token.top, [](const auto& best) { return chat_entry(best.first, best.second); }));
    return entry;
  });
  return Json::object({{"content", std::move(content)}, {"refusal", Json()}});
}

}  // namespace kipp::openai
