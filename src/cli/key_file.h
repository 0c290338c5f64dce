// The file of API keys.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kipp/error.h"

namespace kipp::cli {

struct ApiKey {
  std::string key;
  std::string name;          // what the log calls it
  int32_t max_requests = 0;  // that generate at a time; 0: as --max-requests-per-key says
};

// A name for a key that has none: it tells keys apart, and does not say them.
std::string name_of_key(std::string_view key);

// One a line: KEY [name=NAME] [max-requests=N]; empty lines and those that begin with # do not count. Errors:
// kInvalidArgument naming the line, and never the key.
Result<std::vector<ApiKey>> parse_key_file(std::string_view text);

}  // namespace kipp::cli
