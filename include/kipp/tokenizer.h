// The Qwen3 tokenizer: NFC, the Qwen pre-tokenizer, byte-level BPE, added tokens; and back again.
// Reference: Hugging Face `tokenizers` on the checkpoint's own tokenizer.json; golden cases in tests/golden.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kipp/error.h"

namespace kipp {

enum class SpecialTokens {
  kParse,  // added tokens found in the raw text become their ids (a trusted prompt or template)
  kPlain,  // nothing is special: `<|im_end|>` typed by a user stays text
};

enum class InvalidUtf8 {
  kError,    // an error that names the byte offset
  kReplace,  // each maximal invalid part becomes one U+FFFD, as Hugging Face does
};

struct EncodeOptions {
  SpecialTokens special_tokens = SpecialTokens::kParse;
  InvalidUtf8 invalid_utf8 = InvalidUtf8::kError;
};

// GGUF token types (tokenizer.ggml.token_type).
enum class TokenType : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

// What the artifact stores. Views need to live only during Tokenizer::create.
struct TokenizerSource {
  std::vector<std::string_view> tokens;  // [vocab] normal tokens in the GPT-2 byte alphabet; added tokens literally
  std::vector<TokenType> types;          // [vocab] kNormal, added tokens kControl or kUserDefined, kUnused without text
  std::vector<std::string_view> merges;  // [num_merges] "left right", in rank order
};

// Immutable after creation; every method is safe to call from any number of threads.
class Tokenizer {
 public:
  // Errors: kInvalidArtifact naming the index (a merge of unknown tokens, a duplicate token or merge, a type other than
  // those four, text outside the byte alphabet), or the sizes that differ, or the byte that no token stands for.
  static Result<Tokenizer> create(const TokenizerSource& source);

  // Bytes with a length (NUL is a character) to ids. Errors: kInvalidArgument (invalid UTF-8, with the byte offset of
  // the invalid sequence), kCapacity (more than 2^30 bytes).
  Result<std::vector<int32_t>> encode(std::string_view text, EncodeOptions options = {}) const;

  // A list of pieces: normalisation, pre-tokeniser and BPE see the concatenated text of each maximal run of plain
  // pieces, and a piece that is an added token's id stands alone. The chat renderer's way in: control tokens come only
  // from the caller. Errors: kInvalidArgument naming the piece (invalid UTF-8, an id that is no added token's),
  // kCapacity.
  struct Piece {
    std::string_view text;  // ignored when token >= 0
    int32_t token = -1;     // an added token's id, or -1 for plain text
  };
  Result<std::vector<int32_t>> encode_pieces(std::span<const Piece> pieces) const;

  // Joins the tokens' bytes, then replaces each maximal invalid part by one U+FFFD. Ids without a token (151669 and
  // above) are skipped, as the reference does. Errors: kInvalidArgument (a negative id, with its index).
  Result<std::string> decode(std::span<const int32_t> ids, bool skip_special_tokens = false) const;

  // The raw bytes of one id; empty for an id without a token. Errors: kInvalidArgument (a negative id).
  Result<std::string_view> token_bytes(int32_t id) const;

  bool is_special(int32_t id) const;                        // a control token (Hugging Face's "special": true)
  int32_t token_to_id(std::string_view added_token) const;  // id of an added token by its text, or -1
  int32_t vocab_size() const;                               // 151,936
  int32_t num_tokens() const;  // ids below this one may be sampled: one above the last that has a
                               // token (151,669; 151,665 without the four think/tool tokens)

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

// Turns a stream of ids into a stream of whole UTF-8 characters. The pieces joined equal Tokenizer::decode of the list.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens = true)
      : tokenizer_(&tokenizer), skip_special_tokens_(skip_special_tokens) {}

  // Text that became complete with this id; possibly empty. Errors: kInvalidArgument (a negative id).
  Result<std::string> push(int32_t id);
  // What is left: an incomplete character becomes U+FFFD.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_tokens_;
  std::string pending_;  // at most 3 bytes: an incomplete but so far valid sequence
};

}  // namespace kipp
