// An event of the log as a line of text: for programs (JSON) or for people.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace kipp::log {

enum class Level : uint8_t { kDebug, kInfo, kWarning, kError };
enum class Format : uint8_t { kText, kJson };

std::string_view level_name(Level level);  // "debug", "info", "warning", "error"

// With its line feed, which is the only one. JSON: {"time", "level", "event", …fields}; text: the same without names
// for the first three. What is not UTF-8 in a text becomes U+FFFD; control characters are escaped.
std::string log_line(Format format, std::chrono::system_clock::time_point time, Level level, std::string_view event,
                     std::vector<Json::Member> fields);

}  // namespace kipp::log
