// Asks the environment and the kernel; nothing is cached, a window may be resized.
#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

namespace kipp::cli {
namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : std::string_view();
}

}  // namespace

bool is_terminal(int descriptor) {
  return ::isatty(descriptor) == 1;
}

bool use_colours(int descriptor) {
  const std::string_view terminal = variable("TERM");
  return is_terminal(descriptor) && variable("NO_COLOR").empty() && !terminal.empty() && terminal != "dumb";
}

size_t terminal_width(int descriptor) {
  winsize size{};
  const bool known = ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

}  // namespace kipp::cli
