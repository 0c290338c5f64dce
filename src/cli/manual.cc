// `kipp manual`: the manual page, from the same table as --help.
#include <cctype>
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
#include "kipp/version.h"

namespace kipp::cli {
namespace {

// Plain text as roff: nothing in it is an escape or a request.
std::string roff(std::string_view text) {
  std::string result;
  bool at_start = true;
  for (const char character : text) {
    if (at_start && (character == '.' || character == '\'')) {
      result += "\\&";
    }
    if (character == '\\') {
      result += "\\e";
    } else if (character == '-') {
      result += "\\-";
    } else if (character == '\'') {
      result += "\\(aq";
    } else {
      result += character;
    }
    at_start = character == '\n';
  }
  return result;
}

std::string flag_text(const FlagEntry& flag) {
  std::string text = fmt::format(".TP\n\\fB{}\\fR", roff(fmt::format("{}", fmt::join(flag.names, ", "))));
  if (!flag.choices.empty()) {
    text += fmt::format(" \\fI{}\\fR", roff(fmt::format("{}", fmt::join(flag.choices, "|"))));
  } else if (!flag.value.empty() && !flag.positional) {
    text += fmt::format(" \\fI{}\\fR", roff(flag.value));
  }
  text += fmt::format("\n{}.\n", roff(flag.description));
  if (!flag.variable.empty()) {
    text += fmt::format("Environment variable: \\fB{}\\fR.\n", flag.variable);
  }
  return text;
}

// The footer's examples: what stands between "Examples:" and the next empty line.
std::string examples_text(const CommandEntry& command) {
  const size_t begin = command.footer.find('\n');
  const size_t end = command.footer.find("\n\n");
  if (begin == std::string::npos || end == std::string::npos) {
    return {};
  }
  return fmt::format(".PP\nExamples:\n.PP\n.nf\n{}\n.fi\n", roff(command.footer.substr(begin + 1, end - begin - 1)));
}

std::string command_text(const CommandEntry& command) {
  std::string text = fmt::format(".SS kipp {}\n{}.\n", roff(command.name), roff(command.description));
  for (const FlagEntry& flag : command.flags) {
    text += flag_text(flag);
  }
  return text + examples_text(command);
}

std::string exit_status_text() {
  std::string text = ".SH EXIT STATUS\n";
  for (const ExitCodeEntry& entry : kExitCodes) {
    std::string meaning(entry.meaning);
    meaning.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(meaning.front())));
    text += fmt::format(".TP\n{}\n{}.\n", static_cast<int>(entry.code), roff(meaning));
  }
  return text;
}

constexpr std::string_view kEnd =
    ".SH ENVIRONMENT\n"
    ".TP\n\\fBKIPP_MODEL\\fR\nThe model, where \\fB\\-\\-model\\fR is not given.\n"
    ".TP\n\\fBKIPP_MODELS\\fR\nThe models folder, where \\fB\\-\\-models\\fR is not given.\n"
    ".TP\n\\fBNO_COLOR\\fR\nNo colours, if it is set and not empty.\n"
    ".SH FILES\n"
    ".TP\n\\fImodels/kipp\\-<id>\\-<scheme>.gguf\\fR\nArtifacts as the converter names them; \\fB\\-\\-model\\fR "
    "\\fIid\\fR "
    "finds them.\n"
    ".TP\n\\fI~/.editrc\\fR\nKeys of the line editor in \\fBkipp chat\\fR; see \\fBeditrc\\fR(5).\n";

ExitCode print(const CLI::App& app) {
  return print_result(manual_page(command_table(app)));
}

}  // namespace

std::string manual_page(const std::vector<CommandEntry>& commands) {
  std::string text = fmt::format(
      ".TH KIPP 1 \"\" \"kipp {}\" \"User Commands\"\n"
      ".SH NAME\nkipp \\- run the dense Qwen3 checkpoints\n"
      ".SH SYNOPSIS\n\\fBkipp\\fR \\fIcommand\\fR [\\fIoptions\\fR]\n.br\n\\fBkipp\\fR \\fB\\-\\-version\\fR\n.br\n"
      "\\fBkipp\\fR [\\fIcommand\\fR] \\fB\\-\\-help\\fR\n"
      ".SH DESCRIPTION\nKipp is an inference engine for the dense Qwen3 language models. Results go to standard "
      "output; "
      "errors, summaries and progress go to standard error.\n"
      ".SH COMMANDS\n",
      kVersion);
  for (const CommandEntry& command : commands) {
    text += command_text(command);
  }
  return text + exit_status_text() + std::string(kEnd);
}

void add_manual_command(CLI::App& app, ExitCode& exit_code) {
  CLI::App* command = app.add_subcommand("manual", "Print the manual page (roff)");
  command->footer(help_footer("  kipp manual\n"));
  command->callback([&app, &exit_code] { exit_code = print(app); });
}

}  // namespace kipp::cli
