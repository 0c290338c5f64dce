// Writes until all bytes are out, and remembers the first failure, so that it is reported once.
#include "cli/output.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "cli/wait_until_ready.h"

namespace kipp::cli {
namespace {

// Returns 0, or the errno of the write that failed.
int write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor, bytes.data(), bytes.size());
    if (count >= 0) {
      bytes.remove_prefix(static_cast<size_t>(count));
    } else if (errno == EAGAIN) {
      wait_until_ready(descriptor, POLLOUT);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

}  // namespace

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

ExitCode print_result(std::string_view text) {
  const Result<void> written = standard_output().write(text);
  return written ? ExitCode::kOk : fail(ExitCode::kFailure, written.error());
}

void print_message(std::string_view text) {
  static_cast<void>(write_all(STDERR_FILENO, text));
}

}  // namespace kipp::cli
