// Prompt: text with marked control tokens, and its encoding. Contract in prompt.h.
#include "chat/prompt.h"

#include <fmt/format.h>

namespace kipp::chat {

Prompt& Prompt::text(std::string_view plain) {
  text_ += plain;
  return *this;
}

Prompt& Prompt::control(std::string_view token) {
  controls_.push_back(Mark{text_.size(), token.size()});
  text_ += token;
  return *this;
}

std::vector<Prompt::Part> Prompt::parts() const {
  const std::string_view all = text_;
  std::vector<Part> parts;
  size_t done = 0;
  for (const Mark& mark : controls_) {
    if (mark.begin > done) {
      parts.push_back(Part{all.substr(done, mark.begin - done), false});
    }
    parts.push_back(Part{all.substr(mark.begin, mark.size), true});
    done = mark.begin + mark.size;
  }
  if (done < all.size()) {
    parts.push_back(Part{all.substr(done), false});
  }
  return parts;
}

Result<std::vector<int32_t>> Prompt::encode(const Tokenizer& tokenizer) const {
  std::vector<Tokenizer::Piece> pieces;
  for (const Part& part : parts()) {
    const int32_t token = part.is_control ? tokenizer.token_to_id(part.text) : -1;
    if (part.is_control && token < 0) {
      return make_error(ErrorCode::kUnsupported,
                        fmt::format("the chat template needs the token {}, which the tokenizer of this artifact does "
                                    "not declare; use raw completion, or convert the artifact again",
                                    part.text));
    }
    pieces.push_back(Tokenizer::Piece{part.text, token});
  }
  return tokenizer.encode_pieces(pieces);
}

}  // namespace kipp::chat
