// Signals of the calling thread, held back for a while.
#pragma once

#include <csignal>

namespace kipp {

// Blocks a set of signals, besides those blocked already, until it is destroyed. Threads made meanwhile inherit that.
class BlockedSignals {
 public:
  explicit BlockedSignals(const sigset_t& signals) { ::pthread_sigmask(SIG_BLOCK, &signals, &before_); }
  ~BlockedSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

  // What was blocked before.
  const sigset_t& before() const { return before_; }

 private:
  sigset_t before_{};
};

}  // namespace kipp
