// Fuzzes the tokenizer: any bytes as text, and any bytes as a vocabulary. Built with KIPP_FUZZ (libFuzzer).
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/require.h"
#include "fuzz/small_vocabulary.h"
#include "kipp/tokenizer.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/utf8.h"

namespace {

using kipp::InvalidUtf8;
using kipp::SpecialTokens;
using kipp::Tokenizer;
using kipp::TokenType;
using kipp::fuzzing::require;
using kipp::testing::byte_vocabulary;
using kipp::testing::Vocabulary;

// Enough merges that words of every kind merge over several steps, and added tokens that overlap.
Tokenizer make_tokenizer() {
  Vocabulary vocabulary = byte_vocabulary();
  for (const auto& [left, right] : std::vector<std::pair<std::string, std::string>>{{"a", "a"},
                                                                                    {"aa", "aa"},
                                                                                    {"a", "b"},
                                                                                    {"ab", "a"},
                                                                                    {"aba", "b"},
                                                                                    {"<", "|"},
                                                                                    {" ", " "},
                                                                                    {"  ", "a"},
                                                                                    {"\xF0", "\x9F"},
                                                                                    {"\xCC", "\x81"},
                                                                                    {"\xE4", "\xB8"}}) {
    vocabulary.add(kipp::to_byte_alphabet(left + right), TokenType::kNormal);
    vocabulary.merges.push_back(kipp::to_byte_alphabet(left) + " " + kipp::to_byte_alphabet(right));
  }
  for (const char* added : {"<|im_end|>", "<|im_", "<think>", "<t"}) {
    vocabulary.add(added, added[1] == '|' ? TokenType::kControl : TokenType::kUserDefined);
  }
  return Tokenizer::create(vocabulary.source()).value();
}

void fuzz_text(std::string_view bytes) {
  static const Tokenizer tokenizer = make_tokenizer();
  const bool is_valid = kipp::valid_utf8_prefix(bytes) == bytes.size();
  require(tokenizer.encode(bytes).has_value() == is_valid);
  const auto parsed = tokenizer.encode(bytes, {SpecialTokens::kParse, InvalidUtf8::kReplace}).value();
  const auto plain = tokenizer.encode(bytes, {SpecialTokens::kPlain, InvalidUtf8::kReplace}).value();
  const std::string text = tokenizer.decode(plain).value();
  require(kipp::valid_utf8_prefix(text) == text.size());
  require(tokenizer.encode(text, {SpecialTokens::kPlain, InvalidUtf8::kError}).value() == plain);  // NFC is stable
  for (const bool skip : {false, true}) {
    kipp::StreamDecoder decoder(tokenizer, skip);
    std::string joined;
    for (const int32_t id : parsed) {
      joined += decoder.push(id).value();
    }
    require(joined + decoder.finish() == tokenizer.decode(parsed, skip).value());
  }
}

// Lines: a digit for the type and a text are a token, anything else a merge.
void fuzz_vocabulary(std::string_view bytes) {
  Vocabulary vocabulary = byte_vocabulary();
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const std::string line(bytes.substr(0, end));
    bytes.remove_prefix(end == std::string_view::npos ? bytes.size() : end + 1);
    if (!line.empty() && line[0] >= '0' && line[0] <= '9') {
      vocabulary.add(line.substr(1), static_cast<TokenType>(line[0] - '0'));
    } else {
      vocabulary.merges.push_back(line);
    }
  }
  const auto tokenizer = Tokenizer::create(vocabulary.source());
  if (!tokenizer) {
    require(!tokenizer.error().message.empty());
    return;
  }
  std::string text;
  for (const std::string& token : vocabulary.tokens) {
    text += token;
  }
  const auto ids = tokenizer->encode(text, {SpecialTokens::kParse, InvalidUtf8::kReplace}).value();
  require(tokenizer->decode(ids).has_value());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (!bytes.empty() && bytes[0] == 'V') {
    fuzz_vocabulary(bytes.substr(1));
  } else {
    fuzz_text(bytes);
  }
  return 0;
}
