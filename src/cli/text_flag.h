// Flags whose value is a text that must say something.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace kipp::cli {

// An empty value is refused: it would count as a flag that was not given.
inline CLI::Validator not_empty() {
  return {[](std::string& text) { return text.empty() ? std::string("expected a value, found an empty text") : ""; },
          ""};
}

}  // namespace kipp::cli
