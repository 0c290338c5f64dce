// Encodes hex-coded texts from stdin, one a line, and prints the ids parsed and plain: "1 2 3;4 5". For
// compare_with_huggingface.py.
#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <iostream>
#include <string>

#include "tokenizer/qwen_tokenizer.h"

namespace {

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    unsigned value = 0;
    std::from_chars(hex.data() + i, hex.data() + i + 2, value, 16);
    bytes.push_back(static_cast<char>(value));
  }
  return bytes;
}

}  // namespace

int main() {
  const kipp::Tokenizer& tokenizer = kipp::testing::qwen_tokenizer();
  for (std::string line; std::getline(std::cin, line);) {
    const std::string text = from_hex(line);
    const auto parsed = tokenizer.encode(text);
    const auto plain = tokenizer.encode(text, {.special_tokens = kipp::SpecialTokens::kPlain});
    if (!parsed || !plain) {
      fmt::print("error: {}\n", (parsed ? plain : parsed).error().message);
      continue;
    }
    fmt::print("{};{}\n", fmt::join(*parsed, " "), fmt::join(*plain, " "));
  }
  return 0;
}
