// Ends a generation at a stop string: text goes in as it is decoded and comes out as soon as no stop string can begin
// in it. The same result however the text is cut into pieces.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kipp/error.h"

namespace kipp {

// Errors: kInvalidArgument naming the index (an empty stop string; more than 1,024 bytes; bytes that are not UTF-8),
// or more than 64 of them.
Result<void> validate_stop_strings(std::span<const std::string> stop);

// The first stop string to be complete wins; of several that end at the same byte, the longest.
class StopMatcher {
 public:
  // The strings must outlive the matcher and be valid (validate_stop_strings).
  explicit StopMatcher(std::span<const std::string> stop);

  // Returns the text that may be shown: up to the stop string, or all but the longest end that may begin one. Nothing
  // after a match.
  std::string push(std::string_view text);
  // The end of the text: what was held back. Empty after a match.
  std::string finish();
  // Index of the string that ended the text.
  std::optional<size_t> matched() const { return matched_; }

 private:
  // How much of one stop string the text ends with, kept up to date byte by byte (Knuth, Morris, Pratt 1977).
  struct Progress {
    std::string_view pattern;
    std::vector<size_t> border;  // [pattern] length of the longest proper border of each prefix
    size_t length = 0;
  };
  static void advance(Progress& progress, char byte);

  std::vector<Progress> patterns_;
  std::string held_;
  std::optional<size_t> matched_;
};

}  // namespace kipp
