// CLI11 reads variables and files, too, but does not say where a wrong value was, and lets the file win.
#include "cli/settings.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/suggest.h"
#include "cli/settings_file.h"

namespace kipp::cli {
namespace {

constexpr const char* kConfigFlag = "--config";

bool is_switch(const CLI::Option& option) {
  return option.get_items_expected_max() == 0;
}
bool is_list(const CLI::Option& option) {
  return option.get_items_expected_max() > 1;
}
std::string key_of(const CLI::Option& option) {
  return option.get_lnames().front();
}

// Those that variables and the file may set.
std::vector<CLI::Option*> settable(CLI::App& command) {
  return command.get_options([&command](const CLI::Option* option) {
    return option != command.get_help_ptr() && !option->get_lnames().empty();
  });
}

[[noreturn]] void refuse(const std::string& place, const std::string& reason) {
  throw CLI::ValidationError(place, reason);
}

std::vector<std::string> split_at_commas(std::string_view text) {
  std::vector<std::string> parts;
  while (true) {
    const size_t comma = text.find(',');
    parts.emplace_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

// "true" or "false"; nothing for another text.
std::optional<std::string> switch_value(const std::string& text) {
  constexpr std::array<std::string_view, 4> kOn = {"1", "true", "yes", "on"};
  constexpr std::array<std::string_view, 4> kOff = {"0", "false", "no", "off"};
  std::string lower = text;
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (std::ranges::find(kOn, lower) != kOn.end()) return "true";
  return std::ranges::find(kOff, lower) != kOff.end() ? std::optional<std::string>("false") : std::nullopt;
}

std::optional<Setting> setting_of_variable(const CLI::Option& option) {
  const std::string name = variable_of_flag("--" + key_of(option));
  const char* value = std::getenv(name.c_str());
  if (value == nullptr || *value == '\0') return std::nullopt;
  Setting setting{.key = key_of(option), .values = {value}, .place = name};
  if (is_switch(option)) {
    setting.kind = Setting::Kind::kSwitch;
    const auto known = switch_value(value);
    if (!known) refuse(name, fmt::format("expected true or false, found \"{}\"", value));
    setting.values = {*known};
  } else if (is_list(option)) {
    setting.kind = Setting::Kind::kList;
    setting.values = split_at_commas(value);
  }
  return setting;
}

void check_kind(const CLI::Option& option, const Setting& setting) {
  const bool fits = is_switch(option) ? setting.kind == Setting::Kind::kSwitch
                    : is_list(option) ? setting.kind != Setting::Kind::kSwitch
                                      : setting.kind == Setting::Kind::kText;
  if (fits) return;
  const char* expected = is_switch(option) ? "true or false" : is_list(option) ? "strings" : "one string or number";
  refuse(setting.place, fmt::format("{}: expected {}", setting.key, expected));
}

void apply(CLI::Option& option, const Setting& setting) {
  check_kind(option, setting);
  if (is_switch(option) && setting.values.front() == "false") return;
  try {
    for (const std::string& value : setting.values) option.add_result(value);
    if (!setting.values.empty()) option.run_callback();
  } catch (const CLI::ParseError& error) {
    refuse(setting.place, error.what());
  }
}

std::vector<Setting> settings_of_file(CLI::App& command, const std::vector<CLI::Option*>& options) {
  CLI::Option& config = *command.get_option(kConfigFlag);
  if (config.count() == 0) {
    if (const auto setting = setting_of_variable(config)) apply(config, *setting);
  }
  if (config.count() == 0) return {};
  auto settings = read_settings_file(config.as<std::string>());
  if (!settings) refuse(kConfigFlag, settings.error().message);
  std::vector<std::string> keys;
  for (const CLI::Option* option : options) {
    if (option != &config) keys.push_back(key_of(*option));
  }
  for (const Setting& setting : *settings) {
    if (std::ranges::find(keys, setting.key) == keys.end()) {
      refuse(setting.place, fmt::format("unknown key {}{}", setting.key, did_you_mean(setting.key, keys)));
    }
  }
  return *std::move(settings);
}

}  // namespace

std::string variable_of_flag(std::string_view flag) {
  std::string name = "KIPP_";
  for (const char character : flag.substr(2)) {
    name += character == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(character)));
  }
  return name;
}

void add_settings(CLI::App& command) {
  command
      .add_option(kConfigFlag,
                  "TOML file of flags without their dashes (max-sequences = 16); each also has a variable "
                  "(KIPP_MAX_SEQUENCES), which wins over the file")
      ->type_name("FILE");
  for (CLI::Option* option : settable(command)) option->envname(variable_of_flag("--" + key_of(*option)));
  // Named for the manual and completions; when the command itself is read they are ours.
  command.preparse_callback([&command](size_t) {
    for (CLI::Option* option : settable(command)) option->envname("");
  });
}

void apply_settings(CLI::App& command) {
  const std::vector<CLI::Option*> options = settable(command);
  const std::vector<Setting> file = settings_of_file(command, options);
  for (CLI::Option* option : options) {
    if (option->count() > 0) continue;
    std::optional<Setting> setting = setting_of_variable(*option);
    if (!setting) {
      const auto found = std::ranges::find(file, key_of(*option), &Setting::key);
      if (found != file.end()) setting = *found;
    }
    if (setting) apply(*option, *setting);
  }
}

}  // namespace kipp::cli
