// The genuine Qwen3 tokenizer for tests, read from data/qwen3-tokenizer as a converter would store it in an artifact.
#pragma once

#include <string>
#include <vector>

#include "kipp/tokenizer.h"

namespace kipp::testing {

// Owns the texts that a TokenizerSource looks at.
struct TokenizerData {
  std::vector<std::string> tokens;
  std::vector<TokenType> types;
  std::vector<std::string> merges;

  TokenizerSource source() const;
};

// 151,936 tokens; a base checkpoint's lacks the four think/tool tokens.
TokenizerData read_qwen_tokenizer(bool is_base);

// Created once a process.
const Tokenizer& qwen_tokenizer();
const Tokenizer& qwen_base_tokenizer();

// The 256 single-byte tokens in byte order (id = byte value), as a base for small vocabularies of a test's own.
TokenizerData byte_tokens();

}  // namespace kipp::testing
