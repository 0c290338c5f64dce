// The server's log: one line an event. Whoever logs never waits for whoever reads: lines are queued and written by a
// thread of the logger's own; when the queue is full the oldest go, and a line says how many.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include "base/json.h"
#include "server/log/log_line.h"

namespace kipp::log {

struct Options {
  Format format = Format::kText;
  Level level = Level::kInfo;  // what is less is left out
  int descriptor = 2;
  size_t max_queued_bytes = 4U << 20;
};

class Logger {
 public:
  explicit Logger(Options options);
  // Waits for what is queued, a second at most: then it is lost.
  ~Logger();
  Logger(const Logger&) = delete;
  Logger& operator=(const Logger&) = delete;

  bool wants(Level level) const { return level >= level_; }
  // From any thread. event is a name such as "request_finished".
  void write(Level level, std::string_view event, std::vector<Json::Member> fields = {});

 private:
  struct State;
  static void run(State& state);

  Format format_;
  Level level_;
  std::shared_ptr<State> state_;  // the thread's too: it may outlive the logger, stuck in a write
  std::thread thread_;
};

}  // namespace kipp::log
