// The commands and flags of `kipp` as data, read from the parser itself: for completions, the manual and suggestions.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace kipp::cli {

struct FlagEntry {
  std::vector<std::string> names;    // "-m", "--model"; of a positional its name in capitals
  std::string value;                 // "N", "FILE", …; empty for a switch
  std::vector<std::string> choices;  // where only these are allowed
  std::string description;
  std::string variable;  // environment variable that stands in for it
  bool positional = false;
};

struct CommandEntry {
  std::string name;
  std::string description;
  std::string footer;  // examples and exit codes, as --help prints them
  std::vector<FlagEntry> flags;
};

std::vector<CommandEntry> command_table(const CLI::App& app);

// Every "-x" and "--long" of a command.
std::vector<std::string> flag_names(const CommandEntry& command);

// Texts made from the table (completions.cc, manual.cc). Shells: bash, zsh, fish.
std::string bash_completions(const std::vector<CommandEntry>& commands);
std::string zsh_completions(const std::vector<CommandEntry>& commands);
std::string fish_completions(const std::vector<CommandEntry>& commands);
std::string manual_page(const std::vector<CommandEntry>& commands);

}  // namespace kipp::cli
