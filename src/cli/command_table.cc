// Reads CLI11's options; a list of choices stands in braces behind the type.
#include "cli/command_table.h"

#include <string_view>

#include <CLI/CLI.hpp>

namespace kipp::cli {
namespace {

// "TEXT:{on,off}" to "on", "off"; empty where there are none.
std::vector<std::string> choices_of(std::string_view type) {
  std::vector<std::string> choices;
  const size_t begin = type.find('{');
  const size_t end = type.rfind('}');
  if (begin == std::string_view::npos || end == std::string_view::npos) {
    return choices;
  }
  std::string_view rest = type.substr(begin + 1, end - begin - 1);
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    choices.emplace_back(rest.substr(0, comma));
    rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 1);
  }
  return choices;
}

FlagEntry entry_of(const CLI::Option& option) {
  FlagEntry entry;
  entry.positional = option.get_positional();
  if (entry.positional) {
    entry.names.push_back(option.get_name());
  }
  for (const std::string& name : option.get_snames()) {
    entry.names.push_back("-" + name);
  }
  for (const std::string& name : option.get_lnames()) {
    entry.names.push_back("--" + name);
  }
  const std::string type = option.get_type_name();
  if (option.get_items_expected_max() > 0) {
    entry.choices = choices_of(type);
    entry.value = type.substr(0, type.find(':'));
  }
  entry.description = option.get_description();
  entry.variable = option.get_envname();
  return entry;
}

}  // namespace

std::vector<CommandEntry> command_table(const CLI::App& app) {
  std::vector<CommandEntry> commands;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    CommandEntry entry{.name = command->get_name(),
                       .description = command->get_description(),
                       .footer = command->get_footer(),
                       .flags = {}};
    for (const CLI::Option* option : command->get_options()) {
      entry.flags.push_back(entry_of(*option));
    }
    commands.push_back(std::move(entry));
  }
  return commands;
}

std::vector<std::string> flag_names(const CommandEntry& command) {
  std::vector<std::string> names;
  for (const FlagEntry& flag : command.flags) {
    if (!flag.positional) {
      names.insert(names.end(), flag.names.begin(), flag.names.end());
    }
  }
  return names;
}

}  // namespace kipp::cli
