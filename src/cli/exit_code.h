// Exit codes of `kipp`, documented in docs/cli.md and at the end of every --help.
#pragma once

#include <array>
#include <string_view>

namespace kipp::cli {

enum class ExitCode : int {
  kOk = 0,
  kFailure =
      1,       // run time: input that cannot be used, a JSON line that failed, a gate that is not green, a failed write
  kUsage = 2,  // the command line is wrong
  kModel = 3,  // the model is missing, broken, refused or does not fit
  kInterrupted = 130,   // Ctrl-C (128 + SIGINT)
  kOutputClosed = 141,  // the reader of standard output went away (128 + SIGPIPE); nothing is printed
};

// What --help and the manual say of them.
struct ExitCodeEntry {
  ExitCode code;
  std::string_view meaning;
};
inline constexpr std::array kExitCodes = {
    ExitCodeEntry{ExitCode::kOk, "success"},
    ExitCodeEntry{ExitCode::kFailure,
                  "failed: unusable input, a failed JSON line, a gate that is not green, a failed write"},
    ExitCodeEntry{ExitCode::kUsage, "wrong command line"},
    ExitCodeEntry{ExitCode::kModel, "the model is missing, broken, refused or does not fit"},
    ExitCodeEntry{ExitCode::kInterrupted, "interrupted (Ctrl-C)"},
    ExitCodeEntry{ExitCode::kOutputClosed, "standard output was closed by its reader"},
};

}  // namespace kipp::cli
