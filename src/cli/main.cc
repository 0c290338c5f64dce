// `kipp`: parses the command line and runs one subcommand. Exit codes: exit_code.h.
#include <algorithm>
#include <exception>
#include <new>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/suggest.h"
#include "cli/command_table.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/misread_argument.h"
#include "cli/output.h"

namespace {

using kipp::cli::ExitCode;

void add_commands(CLI::App& app, ExitCode& exit_code) {
  app.require_subcommand(1);
  app.set_version_flag("--version", kipp::cli::version_text(),
                       "Print version, commit, compiler, backends and weight schemes");
  app.footer(
      kipp::cli::help_footer("  kipp run --model models/kipp-kipp-demo-bf16.gguf --chat \"What can you do?\"\n"
                             "  kipp tokenize --model models/kipp-kipp-demo-bf16.gguf \"Hello world\"\n"
                             "  kipp run --help\n"));
  kipp::cli::add_run_command(app, exit_code);
  kipp::cli::add_chat_command(app, exit_code);
  kipp::cli::add_serve_command(app, exit_code);
  kipp::cli::add_tokenize_command(app, exit_code);
  kipp::cli::add_detokenize_command(app, exit_code);
  kipp::cli::add_render_command(app, exit_code);
  kipp::cli::add_ppl_command(app, exit_code);
  kipp::cli::add_bench_command(app, exit_code);
  kipp::cli::add_gates_command(app, exit_code);
  kipp::cli::add_inspect_command(app, exit_code);
  kipp::cli::add_checkpoints_command(app, exit_code);
  kipp::cli::add_completions_command(app, exit_code);
  kipp::cli::add_manual_command(app, exit_code);
}

// What is wrong with a command line: what CLI11 says, or of a name that does not exist the nearest that does.
std::string reason_of(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* command = app.get_subcommands().empty() ? nullptr : app.get_subcommands().front();
  std::vector<std::string> command_names;
  std::vector<std::string> flags = {"--help", "--version"};
  for (const kipp::cli::CommandEntry& entry : kipp::cli::command_table(app)) {
    command_names.push_back(entry.name);
    if (command != nullptr && entry.name == command->get_name()) {
      flags = kipp::cli::flag_names(entry);
    }
  }
  const bool misplaced = command == nullptr || !app.remaining().empty();  // before the command
  const std::vector<std::string> unknown = misplaced ? app.remaining() : command->remaining();
  if (unknown.empty() || dynamic_cast<const CLI::ValidationError*>(&error) != nullptr) {
    return error.what();
  }
  const auto flag = std::ranges::find_if(unknown, [](const std::string& text) { return text.starts_with("-"); });
  if (flag != unknown.end()) {
    const std::string name = flag->substr(0, flag->find('='));
    return fmt::format("unknown flag {}{}", name, kipp::did_you_mean(name, flags));
  }
  if (command != nullptr) {
    return fmt::format("unexpected argument \"{}\"", unknown.front());
  }
  return fmt::format("unknown command \"{}\"{}", unknown.front(), kipp::did_you_mean(unknown.front(), command_names));
}

// --help and --version come as errors too: they are output, everything else is a message.
ExitCode report_parse_error(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
    std::ostringstream text;
    app.exit(error, text, text);
    return kipp::cli::print_result(text.str());
  }
  const bool has_command = !app.get_subcommands().empty();
  const std::string command = has_command ? " " + app.get_subcommands().front()->get_name() : "";
  kipp::cli::print_message(fmt::format("kipp: error: {}\nSee kipp{} --help.\n", reason_of(app, error), command));
  return ExitCode::kUsage;
}

}  // namespace

int main(int argc, char** argv) {
  kipp::cli::install_signal_handlers();
  ExitCode exit_code = ExitCode::kOk;
  try {
    CLI::App app("Kipp runs the dense Qwen3 checkpoints.", "kipp");
    add_commands(app, exit_code);
    if (argc < 2) {
      kipp::cli::print_message(app.help());
      return static_cast<int>(ExitCode::kUsage);
    }
    if (const auto misread =
            kipp::cli::misread_argument(std::span(argv + 1, argv + argc), kipp::cli::command_table(app))) {
      kipp::cli::print_message(fmt::format("kipp: error: {}\n", *misread));
      return static_cast<int>(ExitCode::kUsage);
    }
    try {
      app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      exit_code = report_parse_error(app, error);
    }
  } catch (const std::bad_alloc&) {
    kipp::cli::print_message("kipp: error: out of memory\n");
    exit_code = ExitCode::kFailure;
  } catch (const std::exception& error) {
    kipp::cli::print_message(fmt::format("kipp: error: {}\n", error.what()));
    exit_code = ExitCode::kFailure;
  }
  return static_cast<int>(exit_code);
}
