// A file of settings: TOML with one key a flag, without tables.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "kipp/error.h"

namespace kipp::cli {

struct Setting {
  enum class Kind : uint8_t { kText, kSwitch, kList };
  std::string key;
  Kind kind = Kind::kText;               // a string or a number; true or false; an array of strings and numbers
  std::vector<std::string> values = {};  // of a switch "true" or "false"
  std::string place = {};                // "kipp.toml, line 3"
};

// In the order of the keys' names. Errors: those of read_file; kInvalidArgument naming file and line (no TOML, a table,
// a value of another kind).
Result<std::vector<Setting>> read_settings_file(const std::filesystem::path& path);

}  // namespace kipp::cli
