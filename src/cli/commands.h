// The subcommands of `kipp`, one file each. Every function adds one subcommand to the app; its callback runs after
// parsing and stores the exit code.
#pragma once

#include <string>
#include <string_view>

#include "cli/exit_code.h"

namespace CLI {
class App;
}

namespace kipp::cli {

void add_run_command(CLI::App& app, ExitCode& exit_code);          // run.cc
void add_chat_command(CLI::App& app, ExitCode& exit_code);         // chat.cc
void add_serve_command(CLI::App& app, ExitCode& exit_code);        // serve.cc
void add_tokenize_command(CLI::App& app, ExitCode& exit_code);     // tokenize.cc
void add_detokenize_command(CLI::App& app, ExitCode& exit_code);   // detokenize.cc
void add_render_command(CLI::App& app, ExitCode& exit_code);       // render.cc
void add_ppl_command(CLI::App& app, ExitCode& exit_code);          // ppl.cc
void add_bench_command(CLI::App& app, ExitCode& exit_code);        // bench.cc
void add_gates_command(CLI::App& app, ExitCode& exit_code);        // gates.cc
void add_inspect_command(CLI::App& app, ExitCode& exit_code);      // inspect.cc
void add_checkpoints_command(CLI::App& app, ExitCode& exit_code);  // checkpoints.cc
void add_completions_command(CLI::App& app, ExitCode& exit_code);  // completions.cc
void add_manual_command(CLI::App& app, ExitCode& exit_code);       // manual.cc

// What `kipp --version` prints: version, commit, compiler, backends, weight schemes.
std::string version_text();
// The end of a --help text: examples, one a line, then the exit codes.
std::string help_footer(std::string_view examples);

}  // namespace kipp::cli
