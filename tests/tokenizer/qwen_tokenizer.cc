// Reads tokenizer.json (unpacked by the build) with nlohmann's parser.
#include "tokenizer/qwen_tokenizer.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tokenizer/byte_alphabet.h"

namespace kipp::testing {
namespace {

constexpr size_t kVocab = 151936;
constexpr int32_t kFirstThinkToken = 151665;  // <tool_response>, </tool_response>, <think>, </think>

Tokenizer create_or_abort(bool is_base) {
  const TokenizerData data = read_qwen_tokenizer(is_base);
  Result<Tokenizer> tokenizer = Tokenizer::create(data.source());
  if (!tokenizer) {
    fmt::print(stderr, "{}\n", tokenizer.error().message);
    std::abort();
  }
  return std::move(*tokenizer);
}

}  // namespace

TokenizerSource TokenizerData::source() const {
  return {{tokens.begin(), tokens.end()}, types, {merges.begin(), merges.end()}};
}

TokenizerData read_qwen_tokenizer(bool is_base) {
  std::ifstream file(KIPP_TOKENIZER_JSON);
  const nlohmann::json json = nlohmann::json::parse(file);
  TokenizerData data;
  for (size_t id = 0; id < kVocab; ++id) {
    data.tokens.push_back(fmt::format("[PAD{}]", id));
  }
  data.types.assign(kVocab, TokenType::kUnused);
  for (const auto& [text, id] : json["model"]["vocab"].items()) {
    data.tokens[id.get<size_t>()] = text;
    data.types[id.get<size_t>()] = TokenType::kNormal;
  }
  for (const auto& token : json["added_tokens"]) {
    const auto id = token["id"].get<size_t>();
    if (is_base && id >= kFirstThinkToken) {
      continue;
    }
    data.tokens[id] = token["content"].get<std::string>();
    data.types[id] = token["special"].get<bool>() ? TokenType::kControl : TokenType::kUserDefined;
  }
  for (const auto& merge : json["model"]["merges"]) {
    data.merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  }
  return data;
}

const Tokenizer& qwen_tokenizer() {
  static const Tokenizer tokenizer = create_or_abort(false);
  return tokenizer;
}

const Tokenizer& qwen_base_tokenizer() {
  static const Tokenizer tokenizer = create_or_abort(true);
  return tokenizer;
}

TokenizerData byte_tokens() {
  TokenizerData data;
  for (int byte = 0; byte < 256; ++byte) {
    data.tokens.push_back(to_byte_alphabet(std::string(1, static_cast<char>(byte))));
  }
  data.types.assign(256, TokenType::kNormal);
  return data;
}

}  // namespace kipp::testing
