// Flags whose value is a text: one that must say something, one that must be characters.
#pragma once

#include <string>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "tokenizer/utf8.h"

namespace kipp::cli {

// An empty value is refused: it would count as a flag that was not given.
inline CLI::Validator not_empty() {
  return {[](std::string& text) { return text.empty() ? std::string("expected a value, found an empty text") : ""; },
          ""};
}

// Text that becomes tokens.
inline CLI::Validator is_utf8() {
  return {[](std::string& text) {
            const size_t valid = valid_utf8_prefix(text);
            return valid == text.size() ? std::string()
                                        : fmt::format("expected UTF-8, found an invalid byte at offset {}", valid);
          },
          ""};
}

}  // namespace kipp::cli
