// A prompt under construction: text in which the template's control tokens are marked. Whatever is not marked is
// encoded as plain text, so that content which spells a control token stays text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kipp/chat.h"
#include "kipp/error.h"
#include "kipp/tokenizer.h"

namespace kipp::chat {

class Prompt {
 public:
  Prompt& text(std::string_view plain);
  Prompt& control(std::string_view token);  // an added token by its text

  const std::string& rendered() const { return text_; }
  // Errors: kUnsupported (a control token that the tokenizer does not declare), those of Tokenizer::encode_pieces.
  Result<std::vector<int32_t>> encode(const Tokenizer& tokenizer) const;

  // Test view: each control token and each maximal stretch of plain text between.
  struct Part {
    std::string_view text;
    bool is_control;
  };
  std::vector<Part> parts() const;

 private:
  struct Mark {
    size_t begin;
    size_t size;
  };
  std::string text_;
  std::vector<Mark> controls_;  // ascending, without overlap
};

// The official template of a variant as code (render.cc). Errors: those of render_chat that need no tokenizer.
Result<Prompt> build_prompt(const ChatRequest& request, Variant variant);

}  // namespace kipp::chat
