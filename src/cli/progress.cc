// Rewrites one line in place.
#include "cli/progress.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "cli/output.h"
#include "cli/terminal.h"

namespace kipp::cli {
namespace {

constexpr std::chrono::milliseconds kQuiet{1000};    // shorter work shows nothing
constexpr std::chrono::milliseconds kInterval{100};  // between two drawings
constexpr size_t kBarWidth = 20;
constexpr std::string_view kEraseLine = "\r\x1b[K";

std::string duration(double seconds) {
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  return whole < 60 ? fmt::format("{} s", whole) : fmt::format("{}:{:02} min", whole / 60, whole % 60);
}

}  // namespace

std::string progress_line(std::string_view label, size_t done, size_t total, std::string_view unit, double seconds,
                          std::string_view note, size_t width) {
  const double share = total > 0 ? static_cast<double>(std::min(done, total)) / static_cast<double>(total) : 0.0;
  const auto filled = static_cast<size_t>(share * kBarWidth);
  std::string line = fmt::format("{} [{:.<{}}] {:.0f} % {} of {} {}", label, std::string(filled, '#'), kBarWidth,
                                 share * 100.0, done, total, unit);
  if (share > 0.0) {
    line += fmt::format(", {} left", duration(seconds * (1.0 - share) / share));
  }
  if (!note.empty()) {
    line += fmt::format(", {}", note);
  }
  return line.substr(0, width);
}

Progress::Progress(std::string label, size_t total, std::string unit)
    : label_(std::move(label)), total_(total), unit_(std::move(unit)), terminal_(is_terminal(STDERR_FILENO)) {}

Progress::~Progress() {
  clear();
}

void Progress::update(size_t done, std::string_view note) {
  const Clock::time_point now = Clock::now();
  if (!terminal_ || now - start_ < kQuiet || now - last_drawn_ < kInterval) {
    return;
  }
  last_drawn_ = now;
  shown_ = true;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const size_t width = terminal_width(STDERR_FILENO) - 1;  // the last column would wrap
  print_message(fmt::format("{}{}", kEraseLine, progress_line(label_, done, total_, unit_, seconds, note, width)));
}

void Progress::update(size_t done, size_t total) {
  total_ = total;
  update(done);
}

void Progress::clear() {
  if (std::exchange(shown_, false)) {
    print_message(kEraseLine);
  }
}

}  // namespace kipp::cli
