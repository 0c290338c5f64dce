// The signal handler is one flag: what may be done in a handler, and enough for work that asks between steps.
#include "cli/interrupt.h"

#include <csignal>

namespace kipp::cli {
namespace {

volatile std::sig_atomic_t interrupt_flag = 0;
void (*second_interrupt)(int) = end_by_signal;

void on_interrupt(int signal) {
  if (interrupt_flag != 0) {
    second_interrupt(signal);
  }
  interrupt_flag = 1;
}

}  // namespace

void install_signal_handlers() {
  struct sigaction action = {};
  sigaction(SIGINT, nullptr, &action);
  if (action.sa_handler != SIG_IGN) {
    action = {};
    action.sa_handler = on_interrupt;
    // No SA_RESTART: a blocked read of standard input must return, so that the flag is seen.
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, nullptr);
  }
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

void end_by_signal(int signal) {
  std::signal(signal, SIG_DFL);
  sigset_t own;
  sigemptyset(&own);
  sigaddset(&own, signal);
  static_cast<void>(::sigprocmask(SIG_UNBLOCK, &own, nullptr));
  static_cast<void>(std::raise(signal));
}

void set_second_interrupt(void (*handler)(int)) {
  second_interrupt = handler;
}

void rearm_interrupt() {
  interrupt_flag = 0;
}

bool interrupted() {
  return interrupt_flag != 0;
}

}  // namespace kipp::cli
