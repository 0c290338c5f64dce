// `kipp completions SHELL`: scripts for bash, zsh and fish that complete commands, flags and their values.
#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "cli/command_table.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "kipp_checkpoints.h"

namespace kipp::cli {
namespace {

std::string checkpoint_ids() {
  std::string ids;
  for (const Checkpoint& checkpoint : kCheckpoints) {
    ids += fmt::format("{}{}", ids.empty() ? "" : " ", checkpoint.id);
  }
  return ids;
}

std::string replaced(std::string_view text, std::string_view specials, char before) {
  std::string result;
  for (const char character : text) {
    if (specials.find(character) != std::string_view::npos) {
      result += before;
    }
    result += character;
  }
  return result;
}

// A text between single quotes, for any of the shells.
std::string single_quoted(std::string_view text) {
  std::string result = "'";
  for (const char character : text) {
    result += character == '\'' ? std::string("'\\''") : std::string(1, character);
  }
  return result + "'";
}

bool takes_file(const FlagEntry& flag) {
  return flag.value == "FILE" || flag.value == "PATH";
}

// The values of a flag as bash's compgen options; empty where nothing can be said.
std::string bash_values(const FlagEntry& flag) {
  if (!flag.choices.empty()) {
    return fmt::format("-W '{}'", fmt::join(flag.choices, " "));
  }
  if (flag.value == "MODEL") {
    return fmt::format("-f -W '{}'", checkpoint_ids());
  }
  return flag.value == "DIR" ? "-d" : takes_file(flag) ? "-f" : "";
}

std::string zsh_values(const FlagEntry& flag) {
  if (!flag.choices.empty()) {
    return fmt::format("({})", fmt::join(flag.choices, " "));
  }
  if (flag.value == "MODEL") {
    return fmt::format("{{_alternative 'ids:checkpoint:({})' 'files:artifact:_files'}}", checkpoint_ids());
  }
  return flag.value == "DIR" ? "_files -/" : takes_file(flag) ? "_files" : " ";
}

std::string fish_values(const FlagEntry& flag) {
  if (!flag.choices.empty()) {
    return fmt::format(" -x -a {}", single_quoted(fmt::format("{}", fmt::join(flag.choices, " "))));
  }
  if (flag.value == "MODEL") {
    return fmt::format(" -r -F -a {}", single_quoted(checkpoint_ids()));
  }
  if (flag.value == "DIR") {
    return " -x -a '(__fish_complete_directories)'";
  }
  return flag.value.empty() ? "" : takes_file(flag) ? " -r -F" : " -x";
}

// What the command's argument may be; empty where it may be anything.
std::vector<std::string> argument_choices(const CommandEntry& command) {
  const auto argument = std::ranges::find(command.flags, true, &FlagEntry::positional);
  return argument == command.flags.end() ? std::vector<std::string>() : argument->choices;
}

ExitCode print(const CLI::App& app, const std::string& shell) {
  const std::vector<CommandEntry> commands = command_table(app);
  const std::string text = shell == "bash"  ? bash_completions(commands)
                           : shell == "zsh" ? zsh_completions(commands)
                                            : fish_completions(commands);
  return print_result(text);
}

constexpr std::string_view kExamples =
    "  kipp completions bash > kipp.bash && echo \"source $PWD/kipp.bash\"\n"
    "  kipp completions zsh\n"
    "  kipp completions fish\n";

}  // namespace

std::string bash_completions(const std::vector<CommandEntry>& commands) {
  std::vector<std::string_view> names;
  std::string values;
  std::string flags;
  for (const CommandEntry& command : commands) {
    names.push_back(command.name);
    const std::vector<std::string> choices = argument_choices(command);
    flags += fmt::format("    {}) words='{}'{} ;;\n", command.name, fmt::join(flag_names(command), " "),
                         choices.empty() ? "" : fmt::format(" choices='{}'", fmt::join(choices, " ")));
    for (const FlagEntry& flag : command.flags) {
      if (flag.positional || flag.value.empty()) {
        continue;
      }
      const std::string prefix = fmt::format("\"{} ", command.name);
      values += fmt::format("    {}{}\") ", prefix, fmt::join(flag.names, "\"|" + prefix));
      const std::string options = bash_values(flag);
      values += options.empty()
                    ? "return ;;\n"
                    : fmt::format("mapfile -t COMPREPLY < <(compgen {} -- \"$current\"); return ;;\n", options);
    }
  }
  return fmt::format(
      "# bash completion of kipp; made by: kipp completions bash\n"
      "_kipp() {{\n"
      "  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} command=${{COMP_WORDS[1]}} "
      "words='' choices=''\n"
      "  COMPREPLY=()\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
      "    mapfile -t COMPREPLY < <(compgen -W '{} --help --version' -- \"$current\")\n"
      "    return\n"
      "  fi\n"
      "  case \"$command $previous\" in\n"
      "{}"
      "  esac\n"
      "  case $command in\n"
      "{}"
      "  esac\n"
      "  if [[ $current == -* ]]; then\n"
      "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
      "  elif [ -n \"$choices\" ]; then\n"
      "    mapfile -t COMPREPLY < <(compgen -W \"$choices\" -- \"$current\")\n"
      "  else\n"
      "    mapfile -t COMPREPLY < <(compgen -f -- \"$current\")\n"
      "  fi\n"
      "}}\n"
      "complete -o filenames -F _kipp kipp\n",
      fmt::join(names, " "), values, flags);
}

std::string zsh_completions(const std::vector<CommandEntry>& commands) {
  std::string described;
  std::string cases;
  for (const CommandEntry& command : commands) {
    described += fmt::format("    {}\n", single_quoted(replaced(command.name, ":", '\\') + ":" + command.description));
    cases += fmt::format("    {})\n      _arguments", command.name);
    for (const FlagEntry& flag : command.flags) {
      if (flag.positional) {
        continue;
      }
      for (const std::string& name : flag.names) {
        const std::string value =
            flag.value.empty() ? "" : fmt::format(":{}:{}", replaced(flag.value, ":", '\\'), zsh_values(flag));
        cases += fmt::format(
            " \\\n        {}",
            single_quoted(fmt::format("*{}[{}]{}", name, replaced(flag.description, "[]:\\", '\\'), value)));
      }
    }
    const std::vector<std::string> choices = argument_choices(command);
    cases += choices.empty() ? " \\\n        '*:file:_files'\n      ;;\n"
                             : fmt::format(" \\\n        '1:argument:({})'\n      ;;\n", fmt::join(choices, " "));
  }
  return fmt::format(
      "#compdef kipp\n"
      "# zsh completion of kipp; made by: kipp completions zsh\n"
      "_kipp() {{\n"
      "  local -a commands=(\n{}  )\n"
      "  if (( CURRENT == 2 )); then\n"
      "    _describe command commands\n"
      "    return\n"
      "  fi\n"
      "  local command=$words[2]\n"
      "  shift words\n"
      "  (( CURRENT-- ))\n"
      "  case $command in\n{}  esac\n"
      "}}\n"
      "if [[ $funcstack[1] == _kipp ]]; then  # from a folder of $fpath\n"
      "  _kipp \"$@\"\n"
      "else\n"
      "  compdef _kipp kipp\n"
      "fi\n",
      described, cases);
}

std::string fish_completions(const std::vector<CommandEntry>& commands) {
  std::string text = "# fish completion of kipp; made by: kipp completions fish\n";
  for (const CommandEntry& command : commands) {
    text += fmt::format("complete -c kipp -f -n __fish_use_subcommand -a {} -d {}\n", command.name,
                        single_quoted(command.description));
    if (const std::vector<std::string> choices = argument_choices(command); !choices.empty()) {
      text += fmt::format("complete -c kipp -f -n '__fish_seen_subcommand_from {}' -a {}\n", command.name,
                          single_quoted(fmt::format("{}", fmt::join(choices, " "))));
    }
    for (const FlagEntry& flag : command.flags) {
      if (flag.positional) {
        continue;
      }
      text += fmt::format("complete -c kipp -n '__fish_seen_subcommand_from {}'", command.name);
      for (const std::string& name : flag.names) {
        text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      }
      text += fmt::format("{} -d {}\n", fish_values(flag), single_quoted(flag.description));
    }
  }
  return text;
}

void add_completions_command(CLI::App& app, ExitCode& exit_code) {
  CLI::App* command = app.add_subcommand("completions", "Print a completion script for a shell");
  const auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "bash, zsh or fish")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->footer(help_footer(kExamples));
  command->callback([&app, shell, &exit_code] { exit_code = print(app, *shell); });
}

}  // namespace kipp::cli
