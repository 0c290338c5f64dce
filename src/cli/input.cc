// Reads by descriptor, again after a signal; the line reader keeps only what has no end yet, up to its limit.
#include "cli/input.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <span>

#include <fmt/format.h>

#include "base/blocked_signals.h"
#include "cli/interrupt.h"

namespace kipp::cli {
namespace {

// Returns when there is something to read, the end, or an error; false after an interrupt. One that came between
// asking for it and waiting would be missed: so it is let in only while waiting.
bool wait_for_input(int descriptor) {
  sigset_t interrupts;
  sigemptyset(&interrupts);
  sigaddset(&interrupts, SIGINT);
  const BlockedSignals blocked(interrupts);
  pollfd entry{.fd = descriptor, .events = POLLIN, .revents = 0};
  while (!interrupted()) {
    // Of a negative descriptor poll() would never say a thing; reading it says what is wrong.
    if (descriptor < 0 || ::ppoll(&entry, 1, nullptr, &blocked.before()) >= 0 || errno != EINTR) {
      return true;
    }
  }
  return false;
}

// Bytes read into buffer; 0 at the end of the input or after an interrupt.
Result<size_t> read_some(int descriptor, std::span<char> buffer) {
  while (wait_for_input(descriptor)) {
    const ssize_t count = ::read(descriptor, buffer.data(), buffer.size());
    if (count >= 0) {
      return static_cast<size_t>(count);
    }
    if (errno != EAGAIN && errno != EINTR) {
      return make_error(ErrorCode::kIo, fmt::format("cannot read the input: {}", std::strerror(errno)));
    }
  }
  return size_t{0};
}

using Chunk = std::array<char, 1U << 16>;

}  // namespace

Result<std::string> read_all(int descriptor, size_t max_bytes) {
  struct stat status = {};
  const bool has_size = ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  std::string text;
  Chunk chunk;
  for (;;) {
    KIPP_ASSIGN(const size_t count, read_some(descriptor, chunk));
    if (interrupted()) {
      return make_error(ErrorCode::kIo, "the input was interrupted");
    }
    if (count == 0) {
      return text;
    }
    if (count > max_bytes - text.size()) {
      const std::string found = has_size ? fmt::format("{}", status.st_size) : "more";
      return make_error(ErrorCode::kCapacity,
                        fmt::format("input: expected {} bytes at most, found {}", max_bytes, found));
    }
    text.append(chunk.data(), count);
  }
}

Result<std::string> read_file(const std::filesystem::path& path) {
  if (path == "-") {
    return read_all(STDIN_FILENO);
  }
  // A pipe's other end is waited for like its bytes, by wait_for_input().
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) {
    const ErrorCode code = errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo;
    return make_error(code, fmt::format("{}: {}", path.string(), std::strerror(errno)));
  }
  Result<std::string> text = read_all(descriptor);
  ::close(descriptor);
  if (!text) {
    return make_error(text.error().code, fmt::format("{}: {}", path.string(), text.error().message));
  }
  return text;
}

Result<bool> LineReader::fill() {
  Chunk chunk;
  KIPP_ASSIGN(const size_t count, read_some(descriptor_, chunk));
  buffer_.erase(0, start_);
  start_ = 0;
  buffer_.append(chunk.data(), count);
  return count > 0;
}

Result<std::optional<LineReader::Line>> LineReader::next() {
  size_t skipped = 0;  // bytes of this line that are gone already: it is too long
  const auto line_of = [&](size_t length) {
    const size_t num_bytes = skipped + length;
    const bool too_long = num_bytes > max_line_bytes_;
    return Line{.text = too_long ? std::string() : buffer_.substr(start_, length),
                .too_long = too_long,
                .num_bytes = num_bytes};
  };
  size_t searched = start_;
  for (;;) {
    const size_t end = buffer_.find('\n', searched);
    if (end != std::string::npos) {
      Line line = line_of(end - start_);
      start_ = end + 1;
      return line;
    }
    if (skipped + (buffer_.size() - start_) > max_line_bytes_) {
      skipped += buffer_.size() - start_;
      start_ = buffer_.size();  // dropped by the next fill
    }
    searched = buffer_.size() - start_;
    KIPP_ASSIGN(const bool more, fill());
    if (!more) {
      break;
    }
  }
  if (interrupted() || (buffer_.empty() && skipped == 0)) {
    return std::nullopt;
  }
  Line line = line_of(buffer_.size());
  buffer_.clear();
  return line;
}

}  // namespace kipp::cli
