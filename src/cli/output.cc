// Remembers the first failure, so that it is reported once.
#include "cli/output.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "base/write_all.h"
#include "cli/interrupt.h"

namespace kipp::cli {
Result<void> Output::write(std::string_view bytes) {
  const int reason = failed_ ? EIO : write_all(descriptor_, bytes);
  if (reason == 0) {
    return {};
  }
  failed_ = true;
  closed_by_reader_ = closed_by_reader_ || reason == EPIPE;
  return make_error(ErrorCode::kIo, fmt::format("cannot write to standard output: {}", std::strerror(reason)));
}

Output& standard_output() {
  static Output output(STDOUT_FILENO);
  return output;
}

ExitCode fail(ExitCode code, const Error& error) {
  if (standard_output().closed_by_reader()) {
    return ExitCode::kOutputClosed;
  }
  print_message(fmt::format("kipp: error: {}\n", error.message));
  return code;
}

ExitCode end_of(const Error& error) {
  return interrupted() ? ExitCode::kInterrupted : fail(ExitCode::kFailure, error);
}

ExitCode end_of(const Result<ExitCode>& done) {
  return done ? *done : end_of(done.error());
}

ExitCode print_result(std::string_view text) {
  const Result<void> written = standard_output().write(text);
  return written ? ExitCode::kOk : fail(ExitCode::kFailure, written.error());
}

void print_message(std::string_view text) {
  static_cast<void>(write_all(STDERR_FILENO, text));
}

}  // namespace kipp::cli
