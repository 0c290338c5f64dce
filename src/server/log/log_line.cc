// Both formats escape as JSON does, so that nothing a client sends can begin a line or act on a terminal.
#include "server/log/log_line.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "tokenizer/utf8.h"

namespace kipp::log {
namespace {

std::string time_text(std::chrono::system_clock::time_point time) {
  const auto milliseconds = std::chrono::floor<std::chrono::milliseconds>(time);
  const auto seconds = std::chrono::floor<std::chrono::seconds>(milliseconds);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(std::chrono::system_clock::to_time_t(seconds)),
                     (milliseconds - seconds).count());
}

// JSON leaves DEL and the C1 controls as they are; some terminals act on them.
std::string escape_controls(const std::string& json) {
  std::string text;
  text.reserve(json.size());
  for (size_t i = 0; i < json.size(); ++i) {
    const auto byte = static_cast<unsigned char>(json[i]);
    const auto next = i + 1 < json.size() ? static_cast<unsigned char>(json[i + 1]) : 0U;
    if (byte == 0x7F) {
      text += "\\u007f";
    } else if (byte == 0xC2 && next >= 0x80 && next < 0xA0) {
      text += fmt::format("\\u{:04x}", next);
      ++i;
    } else {
      text += json[i];
    }
  }
  return text;
}

Json cleaned(const Json& value) {
  if (value.is_string()) return Json::string(replace_invalid_utf8(value.as_string()));
  if (!value.is_array()) return value;
  Json items = Json::array();
  for (const Json& item : value.items()) items.push_back(cleaned(item));
  return items;
}

bool is_plain(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) {
    return c > ' ' && c < 0x7F && c != '"' && c != '\\' && c != '=';
  });
}

// A text that is one word stands bare, lists of such words too.
std::string text_value(const Json& value) {
  if (value.is_string() && is_plain(value.as_string())) return value.as_string();
  if (value.is_array() && !value.items().empty() && std::ranges::all_of(value.items(), [](const Json& item) {
        return item.is_string() && is_plain(item.as_string()) && item.as_string().find(',') == std::string::npos;
      })) {
    std::string text;
    for (const Json& item : value.items()) text += (text.empty() ? "" : ",") + item.as_string();
    return text;
  }
  return write_json(value);
}

}  // namespace

std::string_view level_name(Level level) {
  static constexpr std::array<std::string_view, 4> kNames = {"debug", "info", "warning", "error"};
  return kNames[static_cast<size_t>(level)];
}

std::string log_line(Format format, std::chrono::system_clock::time_point time, Level level, std::string_view event,
                     std::vector<Json::Member> fields) {
  for (auto& [name, value] : fields) value = cleaned(value);
  if (format == Format::kText) {
    std::string line = fmt::format("{} {} {}", time_text(time), level_name(level), event);
    for (const auto& [name, value] : fields) line += fmt::format(" {}={}", name, text_value(value));
    return escape_controls(line) + "\n";
  }
  Json json = Json::object({{"time", Json::string(time_text(time))},
                            {"level", Json::string(std::string(level_name(level)))},
                            {"event", Json::string(std::string(event))}});
  for (auto& [name, value] : fields) json.set(std::move(name), std::move(value));
  return escape_controls(write_json(json)) + "\n";
}

}  // namespace kipp::log
