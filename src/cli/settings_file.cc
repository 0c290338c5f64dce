// toml++ is compiled here only, without exceptions: its errors are values like ours.
#include "cli/settings_file.h"

#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include "cli/input.h"

namespace kipp::cli {
namespace {

std::optional<std::string> scalar_text(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return fmt::format("{}", number->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
  return std::nullopt;
}

// Nothing: a value that no flag takes.
std::optional<Setting> setting_of(std::string_view key, const toml::node& node) {
  Setting setting{.key = std::string(key)};
  if (const auto* flag = node.as_boolean()) {
    setting.kind = Setting::Kind::kSwitch;
    setting.values = {flag->get() ? "true" : "false"};
    return setting;
  }
  if (auto text = scalar_text(node)) {
    setting.values = {*std::move(text)};
    return setting;
  }
  const toml::array* array = node.as_array();
  if (array == nullptr) return std::nullopt;
  setting.kind = Setting::Kind::kList;
  for (const toml::node& item : *array) {
    auto text = scalar_text(item);
    if (!text) return std::nullopt;
    setting.values.push_back(*std::move(text));
  }
  return setting;
}

}  // namespace

Result<std::vector<Setting>> read_settings_file(const std::filesystem::path& path) {
  KIPP_ASSIGN(const std::string text, read_file(path));
  const toml::parse_result parsed = toml::parse(std::string_view(text));
  const auto place_of = [&path](const toml::source_region& source) {
    return fmt::format("{}, line {}", path.string(), source.begin.line);
  };
  if (parsed.failed()) {
    const toml::parse_error& error = parsed.error();
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("{}: not TOML: {}", place_of(error.source()), error.description()));
  }
  std::vector<Setting> settings;
  for (const auto& [key, node] : parsed.table()) {
    std::optional<Setting> setting = setting_of(key.str(), node);
    if (!setting) {
      return make_error(ErrorCode::kInvalidArgument,
                        fmt::format("{}: {}: expected a string, a number, true, false, or an array of strings",
                                    place_of(node.source()), key.str()));
    }
    setting->place = place_of(node.source());
    settings.push_back(*std::move(setting));
  }
  return settings;
}

}  // namespace kipp::cli
