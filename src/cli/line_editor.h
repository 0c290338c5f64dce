// Lines from a person at a terminal: editing, history, Ctrl-C and Ctrl-D. Built on libedit.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "kipp/error.h"

namespace kipp::cli {

class LineEditor {
 public:
  // Standard input and output must be a terminal. history: LineHistory's file, or empty. Errors: kIo (the terminal
  // cannot be used; the file cannot be read).
  static Result<LineEditor> create(const std::filesystem::path& history);

  enum class Outcome { kLine, kInterrupted, kEnd };
  // Shows prompt (plain text) and waits for a line. On kLine, line is UTF-8 without its end. Where a line outgrows the
  // screen, its start stays as it is and can be edited no more.
  Outcome read(const std::string& prompt, std::string& line);
  // Adds a line to the history and its file. Errors: those of LineHistory::add.
  Result<void> remember(const std::string& line);

  LineEditor(LineEditor&&) noexcept;
  LineEditor& operator=(LineEditor&&) noexcept;
  ~LineEditor();

 private:
  struct Impl;
  explicit LineEditor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kipp::cli
