// Added tokens kept in byte order; a match narrows a range of them byte by byte, like a walk down a trie.
#include "tokenizer/added_tokens.h"

#include <fmt/format.h>

#include <algorithm>

#include "tokenizer/byte_alphabet.h"

namespace kipp {
namespace {

tl::unexpected<Error> duplicate(int32_t id, std::string_view text, int32_t other) {
  return make_error(ErrorCode::kInvalidArtifact,
                    fmt::format("tokens[{}] {}: the same text as tokens[{}]", id, quote_token(text), other));
}

}  // namespace

Result<AddedTokens> AddedTokens::build(const Vocabulary& vocabulary, const TokenIndex& index) {
  AddedTokens added;
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    if (!vocabulary.is_added(id)) {
      continue;
    }
    const std::string_view text = vocabulary.bytes(id);
    if (const int32_t normal = index.find(to_byte_alphabet(text)); normal >= 0) {
      return duplicate(id, text, normal);
    }
    added.tokens_.push_back({std::string(text), id});
    added.is_first_byte_[static_cast<uint8_t>(text[0])] = true;
  }
  std::sort(added.tokens_.begin(), added.tokens_.end(),
            [](const Token& a, const Token& b) { return a.text != b.text ? a.text < b.text : a.id < b.id; });
  const auto same = std::adjacent_find(added.tokens_.begin(), added.tokens_.end(),
                                       [](const Token& a, const Token& b) { return a.text == b.text; });
  if (same != added.tokens_.end()) {
    return duplicate((same + 1)->id, same->text, same->id);
  }
  return added;
}

AddedTokens::Match AddedTokens::longest_at(std::string_view text, size_t position) const {
  Match longest{text.size(), 0, -1};
  auto first = tokens_.begin();
  auto last = tokens_.end();
  // Invariant: [first, last) are the tokens that begin with the `length` bytes at `position`.
  for (size_t length = 0; first != last; ++length) {
    if (first->text.size() == length) {
      longest = {position, length, first->id};
      ++first;
    }
    if (position + length == text.size()) {
      break;
    }
    const char byte = text[position + length];
    const auto precedes = [length](const Token& token, char b) {
      return static_cast<uint8_t>(token.text[length]) < static_cast<uint8_t>(b);
    };
    const auto follows = [length](char b, const Token& token) {
      return static_cast<uint8_t>(b) < static_cast<uint8_t>(token.text[length]);
    };
    first = std::lower_bound(first, last, byte, precedes);
    last = std::upper_bound(first, last, byte, follows);
  }
  return longest;
}

AddedTokens::Match AddedTokens::find(std::string_view text, size_t start) const {
  for (size_t position = start; position < text.size(); ++position) {
    if (!is_first_byte_[static_cast<uint8_t>(text[position])]) {
      continue;
    }
    const Match match = longest_at(text, position);
    if (match.id >= 0) {
      return match;
    }
  }
  return {text.size(), 0, -1};
}

int32_t AddedTokens::id_of(std::string_view text) const {
  if (text.empty()) {
    return -1;
  }
  const Match match = longest_at(text, 0);
  return match.length == text.size() ? match.id : -1;
}

}  // namespace kipp
