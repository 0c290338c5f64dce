// A vocabulary of the 256 bytes, to which a fuzzer adds its own tokens and merges.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "kipp/tokenizer.h"
#include "tokenizer/byte_alphabet.h"

namespace kipp::testing {

struct Vocabulary {
  std::vector<std::string> tokens;
  std::vector<TokenType> types;
  std::vector<std::string> merges;

  void add(std::string text, TokenType type) {
    tokens.push_back(std::move(text));
    types.push_back(type);
  }
  TokenizerSource source() const { return {{tokens.begin(), tokens.end()}, types, {merges.begin(), merges.end()}}; }
};

// Id b is the byte b.
inline Vocabulary byte_vocabulary() {
  Vocabulary vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary.add(to_byte_alphabet(std::string(1, static_cast<char>(byte))), TokenType::kNormal);
  }
  return vocabulary;
}

}  // namespace kipp::testing
