// The added tokens (control tokens and user-defined ones) and how they are found in raw text.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kipp/error.h"
#include "tokenizer/token_index.h"
#include "tokenizer/vocabulary.h"

namespace kipp {

class AddedTokens {
 public:
  // Errors: kInvalidArtifact naming the index of a duplicate.
  static Result<AddedTokens> build(const Vocabulary& vocabulary, const TokenIndex& index);

  struct Match {
    size_t position;  // text.size() if there is none
    size_t length;
    int32_t id;
  };
  // The leftmost occurrence of an added token in `text` from `start` on, the longest of those that begin there.
  // Byte for byte, so on raw text; time linear in what it reads times at most the longest token.
  Match find(std::string_view text, size_t start) const;

  int32_t id_of(std::string_view text) const;  // or -1

 private:
  struct Token {
    std::string text;
    int32_t id;
  };
  Match longest_at(std::string_view text, size_t position) const;

  std::vector<Token> tokens_;  // ascending by bytes
  std::array<bool, 256> is_first_byte_{};
};

}  // namespace kipp
