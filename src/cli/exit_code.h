// Exit codes of `kipp`, documented in docs/cli.md and at the end of every --help.
#pragma once

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

}  // namespace kipp::cli
