// A progress bar on standard error for work of more than a second. Only on a terminal, and gone when the work is done.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

namespace kipp::cli {

class Progress {
 public:
  // label says what is done ("prompt"), unit what is counted ("tokens").
  Progress(std::string label, size_t total, std::string unit);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Draws at most ten times a second. note: shown behind the bar.
  void update(size_t done, std::string_view note = {});
  // The same where the total becomes known only now.
  void update(size_t done, size_t total);
  // Erases the bar: before other output on the terminal.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  std::string label_;
  size_t total_;
  std::string unit_;
  bool terminal_;
  bool shown_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_drawn_ = {};
};

// The line itself, cut to width columns: "prompt [####....] 50 % 512 of 1024 tokens, 3 s left". seconds: since start.
std::string progress_line(std::string_view label, size_t done, size_t total, std::string_view unit, double seconds,
                          std::string_view note, size_t width);

}  // namespace kipp::cli
