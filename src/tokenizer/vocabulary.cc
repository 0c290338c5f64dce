// Builds the vocabulary from the artifact's arrays, checking every entry.
#include "tokenizer/vocabulary.h"

#include <fmt/format.h>

#include <utility>

#include "tokenizer/byte_alphabet.h"
#include "tokenizer/utf8.h"

namespace kipp {
namespace {

constexpr size_t kMaxTokenBytes = (size_t{1} << 14) - 1;  // kMaxTokens of them stay within 32-bit offsets; Qwen3: 128

tl::unexpected<Error> bad_token(size_t id, std::string_view text, std::string_view what) {
  return make_error(ErrorCode::kInvalidArtifact, fmt::format("tokens[{}] {}: {}", id, quote_token(text), what));
}

Result<void> check_sizes(const TokenizerSource& source) {
  if (source.types.size() != source.tokens.size()) {
    return make_error(ErrorCode::kInvalidArtifact, fmt::format("token types: expected {}, one for each token, found {}",
                                                               source.tokens.size(), source.types.size()));
  }
  if (source.tokens.size() < 256 || source.tokens.size() > kMaxTokens) {
    return make_error(ErrorCode::kInvalidArtifact,
                      fmt::format("tokens: expected 256 to {}, found {}", kMaxTokens, source.tokens.size()));
  }
  return {};
}

}  // namespace

std::string quote_token(std::string_view text) {
  constexpr size_t kMaxBytes = 40;
  if (text.size() <= kMaxBytes) {
    return fmt::format("'{}'", replace_invalid_utf8(text));
  }
  return fmt::format("'{}…' ({} bytes)", replace_invalid_utf8(text.substr(0, kMaxBytes)), text.size());
}

Result<Vocabulary> Vocabulary::build(const TokenizerSource& source, TokenIndex& index) {
  KIPP_TRY(check_sizes(source));
  Vocabulary vocabulary;
  vocabulary.types_ = source.types;
  vocabulary.ends_.reserve(source.tokens.size() + 1);
  vocabulary.ends_.push_back(0);
  vocabulary.bytes_.reserve(source.tokens.size() * 8);
  for (size_t id = 0; id < source.tokens.size(); ++id) {
    const std::string_view text = source.tokens[id];
    switch (source.types[id]) {
      case TokenType::kNormal: {
        KIPP_TRY(vocabulary.add_normal(source, id, index));
        break;
      }
      case TokenType::kControl:
      case TokenType::kUserDefined:
        if (text.empty() || text.size() > kMaxTokenBytes || valid_utf8_prefix(text) != text.size()) {
          return bad_token(id, text, "expected an added token of valid UTF-8 that is not empty");
        }
        vocabulary.bytes_.append(text);
        break;
      case TokenType::kUnused: break;
      default:
        return bad_token(id, text,
                         fmt::format("expected type 1, 3, 4 or 5, found {}", static_cast<int32_t>(source.types[id])));
    }
    vocabulary.ends_.push_back(static_cast<uint32_t>(vocabulary.bytes_.size()));
    if (source.types[id] != TokenType::kUnused) {
      vocabulary.num_tokens_ = static_cast<int32_t>(id) + 1;
    }
  }
  KIPP_TRY(vocabulary.find_byte_tokens());
  return vocabulary;
}

Result<void> Vocabulary::add_normal(const TokenizerSource& source, size_t id, TokenIndex& index) {
  const std::string_view text = source.tokens[id];
  if (text.empty() || text.size() > kMaxTokenBytes || !append_alphabet_bytes(text, bytes_)) {
    return bad_token(id, text, "expected characters of the byte alphabet, at least one");
  }
  const int32_t entered = index.insert(static_cast<int32_t>(id));
  if (static_cast<size_t>(entered) != id) {
    return bad_token(id, text, fmt::format("the same text as tokens[{}]", entered));
  }
  return {};
}

Result<void> Vocabulary::find_byte_tokens() {
  byte_ids_.fill(-1);
  for (int32_t id = 0; id < size(); ++id) {
    if (type(id) == TokenType::kNormal && bytes(id).size() == 1) {
      byte_ids_[static_cast<uint8_t>(bytes(id)[0])] = id;
    }
  }
  for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    if (byte_ids_[byte] < 0) {
      return make_error(ErrorCode::kInvalidArtifact, fmt::format("tokens: no token for the byte 0x{:02X}", byte));
    }
  }
  return {};
}

}  // namespace kipp
