// Words of a line, separated by blanks.
#include "cli/key_file.h"

#include <algorithm>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "base/sha256.h"
#include "cli/number_flag.h"

namespace kipp::cli {
namespace {

constexpr size_t kNameDigits = 8;

std::vector<std::string_view> words_of(std::string_view line) {
  constexpr std::string_view kBlanks = " \t\r";
  std::vector<std::string_view> words;
  for (size_t begin = line.find_first_not_of(kBlanks); begin != std::string_view::npos;) {
    const size_t end = std::min(line.find_first_of(kBlanks, begin), line.size());
    words.push_back(line.substr(begin, end - begin));
    begin = line.find_first_not_of(kBlanks, end);
  }
  return words;
}

Result<ApiKey> parse_line(std::span<const std::string_view> words, size_t line) {
  constexpr std::string_view kName = "name=";
  constexpr std::string_view kLimit = "max-requests=";
  const auto refuse = [line](std::string_view reason) {
    return make_error(ErrorCode::kInvalidArgument, fmt::format("line {}: {}", line, reason));
  };
  ApiKey key{.key = std::string(words.front()), .name = name_of_key(words.front())};
  for (const std::string_view word : words.subspan(1)) {
    if (word.starts_with(kName) && word.size() > kName.size()) {
      key.name = word.substr(kName.size());
    } else if (word.starts_with(kLimit)) {
      const auto limit = parse_number<int32_t>(word.substr(kLimit.size()));
      if (!limit || *limit < 1) return refuse("max-requests: expected a whole number above 0");
      key.max_requests = *limit;
    } else {
      return refuse("expected KEY, name=NAME and max-requests=N behind it");
    }
  }
  return key;
}

}  // namespace

std::string name_of_key(std::string_view key) {
  return "key-" + sha256_hex(std::as_bytes(std::span(key))).substr(0, kNameDigits);
}

Result<std::vector<ApiKey>> parse_key_file(std::string_view text) {
  std::vector<ApiKey> keys;
  for (size_t begin = 0, line = 1; begin < text.size(); ++line) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::vector<std::string_view> words = words_of(text.substr(begin, end - begin));
    begin = end + 1;
    if (words.empty() || words.front().starts_with('#')) continue;
    KIPP_ASSIGN(ApiKey key, parse_line(words, line));
    keys.push_back(std::move(key));
  }
  return keys;
}

}  // namespace kipp::cli
