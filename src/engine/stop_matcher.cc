// Every pattern advances with every byte; what is held back is the longest of their partial matches.
#include "engine/stop_matcher.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "tokenizer/utf8.h"

namespace kipp {
namespace {

constexpr size_t kMaxStopStrings = 64;
constexpr size_t kMaxStopBytes = 1024;

std::vector<size_t> borders_of(std::string_view pattern) {
  std::vector<size_t> border(pattern.size(), 0);
  for (size_t i = 1; i < pattern.size(); ++i) {
    size_t length = border[i - 1];
    while (length > 0 && pattern[length] != pattern[i]) {
      length = border[length - 1];
    }
    border[i] = pattern[length] == pattern[i] ? length + 1 : 0;
  }
  return border;
}

}  // namespace

Result<void> validate_stop_strings(std::span<const std::string> stop) {
  if (stop.size() > kMaxStopStrings) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("stop: expected at most {} strings, found {}", kMaxStopStrings, stop.size()));
  }
  for (size_t i = 0; i < stop.size(); ++i) {
    if (stop[i].empty() || stop[i].size() > kMaxStopBytes) {
      return make_error(ErrorCode::kInvalidArgument,
                        fmt::format("stop[{}]: expected 1 to {} bytes, found {}", i, kMaxStopBytes, stop[i].size()));
    }
    if (const size_t valid = valid_utf8_prefix(stop[i]); valid < stop[i].size()) {  // no text that is decoded has it
      return make_error(ErrorCode::kInvalidArgument,
                        fmt::format("stop[{}]: expected UTF-8, found an invalid byte at offset {}", i, valid));
    }
  }
  return {};
}

StopMatcher::StopMatcher(std::span<const std::string> stop) {
  for (const std::string& pattern : stop) {
    patterns_.push_back({.pattern = pattern, .border = borders_of(pattern)});
  }
}

void StopMatcher::advance(Progress& progress, char byte) {
  while (progress.length > 0 && progress.pattern[progress.length] != byte) {
    progress.length = progress.border[progress.length - 1];
  }
  progress.length += progress.pattern[progress.length] == byte ? 1U : 0U;
}

std::string StopMatcher::push(std::string_view text) {
  if (patterns_.empty()) {
    return std::string(text);
  }
  for (const char byte : text) {
    if (matched_) {
      break;
    }
    held_ += byte;
    for (size_t i = 0; i < patterns_.size(); ++i) {
      advance(patterns_[i], byte);
      const bool complete = patterns_[i].length == patterns_[i].pattern.size();
      if (complete && (!matched_ || patterns_[i].pattern.size() > patterns_[*matched_].pattern.size())) {
        matched_ = i;
      }
    }
  }
  size_t kept = 0;
  if (matched_) {
    kept = patterns_[*matched_].pattern.size();
  } else {
    for (const Progress& progress : patterns_) {
      kept = std::max(kept, progress.length);
    }
  }
  std::string shown = held_.substr(0, held_.size() - kept);
  held_.erase(0, matched_ ? held_.size() : shown.size());
  return shown;
}

std::string StopMatcher::finish() {
  return std::exchange(held_, {});
}

}  // namespace kipp
