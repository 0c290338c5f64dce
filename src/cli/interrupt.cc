// The signal handler is one flag: what may be done in a handler, and enough for work that asks between steps.
#include "cli/interrupt.h"

#include <csignal>

namespace kipp::cli {
namespace {

volatile std::sig_atomic_t interrupt_flag = 0;

void on_interrupt(int) {
  interrupt_flag = 1;
}

void catch_interrupt() {
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  // No SA_RESTART: a blocked read of standard input must return, so that the flag is seen.
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
}

}  // namespace

void install_signal_handlers() {
  catch_interrupt();
  std::signal(SIGPIPE, SIG_IGN);
}

void rearm_interrupt() {
  catch_interrupt();
  interrupt_flag = 0;
}

bool interrupted() {
  return interrupt_flag != 0;
}

}  // namespace kipp::cli
