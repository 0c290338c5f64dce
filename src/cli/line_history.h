// The lines typed before: a libedit history, with a file that outlives the process however it ends.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "kipp/error.h"

struct historyW;

namespace kipp::cli {

class LineHistory {
 public:
  LineHistory();
  LineHistory(const LineHistory&) = delete;
  LineHistory& operator=(const LineHistory&) = delete;
  ~LineHistory();

  // Reads the file; one that is empty or absent holds no lines. An empty path: lines live as long as this object.
  // Errors: kIo (not a history of lines or no regular file, not readable, not writable).
  Result<void> open(const std::filesystem::path& path);

  // Adds a line, and writes the file (mode 0600) before it returns: what it holds by then, as another process may have
  // written it, and the lines of this one. Errors: kIo; the file is as before, and the next call writes this line too.
  Result<void> add(const std::string& line);

  // For EL_HIST.
  historyW* handle() { return lines_; }

 private:
  historyW* lines_;
  std::filesystem::path path_;
  std::vector<std::string> unsaved_;
};

}  // namespace kipp::cli
