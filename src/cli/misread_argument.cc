// Walks the arguments as the command's flags take them.
#include "cli/misread_argument.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

namespace kipp::cli {
namespace {

const FlagEntry* find_flag(const CommandEntry& command, std::string_view name) {
  const auto found = std::ranges::find_if(command.flags, [&](const FlagEntry& flag) {
    return !flag.positional && std::ranges::find(flag.names, name) != flag.names.end();
  });
  return found == command.flags.end() ? nullptr : &*found;
}

// The first argument, which is no command.
std::optional<std::string> misplaced_flag(std::string_view argument, std::span<const CommandEntry> commands) {
  const std::string_view name = argument.substr(0, argument.find('='));
  const auto takes_it = [&](const CommandEntry& command) { return find_flag(command, name) != nullptr; };
  if (!name.starts_with('-') || name == "--help" || name == "-h" || std::ranges::none_of(commands, takes_it)) {
    return std::nullopt;
  }
  return fmt::format("{} belongs behind the command: kipp COMMAND {} …", name, argument);
}

// One argument that is no flag's value.
std::optional<std::string> misread_word(std::string_view word, const CommandEntry& command) {
  if (word == "++") {
    return "\"++\" as a text must follow --";
  }
  if (word.starts_with("--") && word.ends_with('=')) {
    const std::string_view name = word.substr(0, word.size() - 1);
    return fmt::format("{} needs a value behind \"=\"; an empty text is {} \"\"", name, name);
  }
  if (word.size() > 2 && word[0] == '-' && word[1] != '-' && word[2] == '=') {
    if (const FlagEntry* flag = find_flag(command, word.substr(0, 2)); flag != nullptr) {
      return flag->value.empty() ? fmt::format("{} takes no value", word.substr(0, 2))
                                 : fmt::format("a short flag takes no \"=\": {} {}", word.substr(0, 2), word.substr(3));
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> misread_argument(std::span<const char* const> arguments,
                                            std::span<const CommandEntry> commands) {
  if (arguments.empty()) {
    return std::nullopt;
  }
  const auto command = std::ranges::find(commands, std::string_view(arguments.front()), &CommandEntry::name);
  if (command == commands.end()) {
    return misplaced_flag(arguments.front(), commands);
  }
  for (size_t i = 1; i < arguments.size() && std::string_view(arguments[i]) != "--"; ++i) {
    if (const auto misread = misread_word(arguments[i], *command)) {
      return misread;
    }
    const FlagEntry* flag = find_flag(*command, arguments[i]);
    i += flag != nullptr && !flag->value.empty() ? 1U : 0U;
  }
  return std::nullopt;
}

}  // namespace kipp::cli
