// Reads by descriptor, again after a signal; the line reader keeps only what has no end yet, up to its limit.
#include "cli/input.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <span>

#include <fmt/format.h>

#include "cli/interrupt.h"
#include "cli/wait_until_ready.h"

namespace kipp::cli {
namespace {

// Bytes read into buffer; 0 at the end of the input or after an interrupt.
Result<size_t> read_some(int descriptor, std::span<char> buffer) {
  for (;;) {
    if (interrupted()) {
      return size_t{0};
    }
    const ssize_t count = ::read(descriptor, buffer.data(), buffer.size());
    if (count >= 0) {
      return static_cast<size_t>(count);
    }
    if (errno == EAGAIN) {
      wait_until_ready(descriptor, POLLIN);
    } else if (errno != EINTR) {
      return make_error(ErrorCode::kIo, fmt::format("cannot read the input: {}", std::strerror(errno)));
    }
  }
}

using Chunk = std::array<char, 1U << 16>;

}  // namespace

Result<std::string> read_all(int descriptor) {
  std::string text;
  Chunk chunk;
  for (;;) {
    KIPP_ASSIGN(const size_t count, read_some(descriptor, chunk));
    if (count == 0) {
      return text;
    }
    text.append(chunk.data(), count);
  }
}

Result<std::string> read_file(const std::filesystem::path& path) {
  if (path == "-") {
    return read_all(STDIN_FILENO);
  }
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
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
  bool too_long = false;
  size_t searched = start_;
  for (;;) {
    const size_t end = buffer_.find('\n', searched);
    const size_t length = (end == std::string::npos ? buffer_.size() : end) - start_;
    too_long = too_long || length > max_line_bytes_;
    if (end != std::string::npos) {
      Line line{.text = too_long ? std::string() : buffer_.substr(start_, length), .too_long = too_long};
      start_ = end + 1;
      return line;
    }
    if (too_long) {
      start_ = buffer_.size();  // dropped by the next fill
    }
    searched = buffer_.size() - start_;
    KIPP_ASSIGN(const bool more, fill());
    if (!more) {
      break;
    }
  }
  if (interrupted() || (buffer_.empty() && !too_long)) {
    return std::nullopt;
  }
  Line line{.text = too_long ? std::string() : std::move(buffer_), .too_long = too_long};
  buffer_.clear();
  return line;
}

}  // namespace kipp::cli
