// Reading files and standard input: whole, or line by line with a limit.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>

#include "kipp/error.h"

namespace kipp::cli {

// A text that memory holds together with its tokens.
inline constexpr size_t kMaxTextBytes = 1U << 30;

// All bytes up to the end. Errors: kCapacity (more than max_bytes); kIo, also after an interrupt (Ctrl-C): what came
// before it is no input.
Result<std::string> read_all(int descriptor, size_t max_bytes = kMaxTextBytes);
// "-" is standard input. Errors: kNotFound, kIo naming the path; those of read_all.
Result<std::string> read_file(const std::filesystem::path& path);

inline constexpr size_t kMaxLineBytes = 16U << 20;

// Lines without their "\n" (the last one may lack it); memory stays bounded for any input.
class LineReader {
 public:
  explicit LineReader(int descriptor, size_t max_line_bytes = kMaxLineBytes)
      : descriptor_(descriptor), max_line_bytes_(max_line_bytes) {}

  struct Line {
    std::string text;       // empty when too_long
    bool too_long = false;  // longer than the limit: skipped to its end
    size_t num_bytes = 0;   // of the line, also when it was skipped
  };
  // The next line, or nothing at the end of the input or after an interrupt. Errors: kIo.
  Result<std::optional<Line>> next();

 private:
  // Returns false at the end of the input.
  Result<bool> fill();

  int descriptor_;
  size_t max_line_bytes_;
  std::string buffer_;  // read but not yet handed out from start_ on
  size_t start_ = 0;
};

}  // namespace kipp::cli
