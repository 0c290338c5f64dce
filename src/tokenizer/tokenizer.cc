// The public tokenizer: raw text to added tokens and plain runs, runs through NFC, words and BPE; and back to text.
#include "kipp/tokenizer.h"

#include <fmt/format.h>

#include <utility>

#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/char_class.h"
#include "tokenizer/merge_table.h"
#include "tokenizer/nfc.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/token_index.h"
#include "tokenizer/utf8.h"
#include "tokenizer/vocabulary.h"

namespace kipp {

struct Tokenizer::Impl {
  Vocabulary vocabulary;
  MergeTable merges;
  AddedTokens added;

  // One encode call's buffers and its result.
  struct Run {
    NfcBuffers nfc;
    BpeWorkspace bpe;
    std::vector<int32_t> ids;
  };
  void encode_plain(std::string_view text, Run& run) const;
  void encode_parsed(std::string_view text, Run& run) const;
};

namespace {

// Keeps every offset of a word, also after NFC (at most three times as long), within 32 bits.
constexpr size_t kMaxTextBytes = size_t{1} << 30;

Result<void> check_size(size_t num_bytes) {
  if (num_bytes > kMaxTextBytes) {
    return make_error(ErrorCode::kCapacity,
                      fmt::format("a text of {} bytes: the tokenizer takes at most {}", num_bytes, kMaxTextBytes));
  }
  return {};
}

Result<void> check_utf8(std::string_view text) {
  const size_t valid = valid_utf8_prefix(text);
  if (valid != text.size()) {
    return make_error(ErrorCode::kInvalidArgument, fmt::format("invalid UTF-8 at byte offset {} (byte 0x{:02X})", valid,
                                                               static_cast<uint8_t>(text[valid])));
  }
  return {};
}

}  // namespace

void Tokenizer::Impl::encode_plain(std::string_view text, Run& run) const {
  const std::string_view normalised = to_nfc(text, run.nfc);
  const uint8_t* classes = char_class_table();
  const Bpe bpe(merges, vocabulary.byte_ids());
  for (size_t start = 0; start < normalised.size();) {
    const size_t end = next_word_end(normalised, start, classes);
    bpe.encode(normalised.substr(start, end - start), run.bpe, run.ids);
    start = end;
  }
}

void Tokenizer::Impl::encode_parsed(std::string_view text, Run& run) const {
  for (size_t start = 0; start < text.size();) {
    const AddedTokens::Match match = added.find(text, start);
    encode_plain(text.substr(start, match.position - start), run);
    if (match.id >= 0) {
      run.ids.push_back(match.id);
    }
    start = match.position + match.length;
  }
}

Result<Tokenizer> Tokenizer::create(const TokenizerSource& source) {
  TokenIndex index(source.tokens);
  KIPP_ASSIGN(Vocabulary vocabulary, Vocabulary::build(source, index));
  KIPP_ASSIGN(MergeTable merges, MergeTable::build(source.merges, source.tokens, vocabulary, index));
  KIPP_ASSIGN(AddedTokens added, AddedTokens::build(vocabulary, index));
  char_class_table();  // built here rather than in the first call of encode
  return Tokenizer(std::make_unique<const Impl>(Impl{std::move(vocabulary), std::move(merges), std::move(added)}));
}

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  KIPP_TRY(check_size(text.size()));
  std::string replaced;
  if (options.invalid_utf8 == InvalidUtf8::kError) {
    KIPP_TRY(check_utf8(text));
  } else if (valid_utf8_prefix(text) != text.size()) {
    replaced = replace_invalid_utf8(text);
    text = replaced;
    KIPP_TRY(check_size(text.size()));
  }
  Impl::Run run;
  if (options.special_tokens == SpecialTokens::kParse) {
    impl_->encode_parsed(text, run);
  } else {
    impl_->encode_plain(text, run);
  }
  return std::move(run.ids);
}

Result<std::vector<int32_t>> Tokenizer::encode_pieces(std::span<const Piece> pieces) const {
  Impl::Run run;
  std::string plain;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    if (piece.token >= 0) {
      if (!impl_->vocabulary.is_added(piece.token)) {
        return make_error(ErrorCode::kInvalidArgument,
                          fmt::format("pieces[{}]: {} is not the id of an added token", i, piece.token));
      }
      impl_->encode_plain(plain, run);
      plain.clear();
      run.ids.push_back(piece.token);
      continue;
    }
    if (auto valid = check_utf8(piece.text); !valid) {
      return make_error(valid.error().code, fmt::format("pieces[{}]: {}", i, valid.error().message));
    }
    plain.append(piece.text);
    KIPP_TRY(check_size(plain.size()));
  }
  impl_->encode_plain(plain, run);
  return std::move(run.ids);
}

Result<std::string> Tokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  std::string bytes;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0) {
      return make_error(ErrorCode::kInvalidArgument, fmt::format("ids[{}]: {} is not a token id", i, ids[i]));
    }
    if (!skip_special_tokens || !is_special(ids[i])) {
      bytes.append(impl_->vocabulary.bytes(ids[i]));
    }
  }
  return valid_utf8_prefix(bytes) == bytes.size() ? std::move(bytes) : replace_invalid_utf8(bytes);
}

Result<std::string_view> Tokenizer::token_bytes(int32_t id) const {
  if (id < 0) {
    return make_error(ErrorCode::kInvalidArgument, fmt::format("{} is not a token id", id));
  }
  return impl_->vocabulary.bytes(id);
}

bool Tokenizer::is_special(int32_t id) const {
  return impl_->vocabulary.type(id) == TokenType::kControl;
}

int32_t Tokenizer::token_to_id(std::string_view added_token) const {
  return impl_->added.id_of(added_token);
}
int32_t Tokenizer::vocab_size() const {
  return impl_->vocabulary.size();
}
int32_t Tokenizer::num_tokens() const {
  return impl_->vocabulary.num_tokens();
}

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

}  // namespace kipp
