// The tokens by id: their bytes, their types, and the ids of the 256 single bytes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kipp/error.h"
#include "kipp/tokenizer.h"
#include "tokenizer/token_index.h"

namespace kipp {

// Ids fit 18 bits, so that a pair of them and a rank fit one word of the merge table.
inline constexpr size_t kMaxTokens = (size_t{1} << 18) - 1;

class Vocabulary {
 public:
  // Enters the normal tokens into `index`, whose tokens are source.tokens.
  // Errors: kInvalidArtifact naming the index (sizes, types, duplicates, empty tokens, text outside the byte alphabet)
  // or the byte that has no token.
  static Result<Vocabulary> build(const TokenizerSource& source, TokenIndex& index);

  int32_t size() const { return static_cast<int32_t>(types_.size()); }
  bool contains(int32_t id) const { return id >= 0 && id < size(); }
  TokenType type(int32_t id) const { return contains(id) ? types_[static_cast<size_t>(id)] : TokenType::kUnused; }
  bool is_added(int32_t id) const { return type(id) == TokenType::kControl || type(id) == TokenType::kUserDefined; }
  // The bytes that the token stands for; empty for an id without one.
  std::string_view bytes(int32_t id) const {
    if (!contains(id)) {
      return {};
    }
    const auto i = static_cast<size_t>(id);
    return std::string_view(bytes_).substr(ends_[i], ends_[i + 1] - ends_[i]);
  }
  const std::array<int32_t, 256>& byte_ids() const { return byte_ids_; }
  // One above the last id that has a token.
  int32_t num_tokens() const { return num_tokens_; }

 private:
  Result<void> add_normal(const TokenizerSource& source, size_t id, TokenIndex& index);
  Result<void> find_byte_tokens();

  std::string bytes_;           // of all tokens, one after the other
  std::vector<uint32_t> ends_;  // [size + 1] token i is bytes ends_[i] … ends_[i + 1]
  std::vector<TokenType> types_;
  std::array<int32_t, 256> byte_ids_{};
  int32_t num_tokens_ = 0;
};

// A token's text for an error message, cut to a readable length.
std::string quote_token(std::string_view text);

}  // namespace kipp
