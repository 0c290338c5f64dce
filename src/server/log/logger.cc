// The queue is the only thing that a logging thread and the writing thread share.
#include "server/log/logger.h"

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <mutex>
#include <string>
#include <utility>

#include "base/blocked_signals.h"
#include "base/write_all.h"

namespace kipp::log {
namespace {

using std::chrono::system_clock;
constexpr std::chrono::seconds kLastWords{1};

}  // namespace

struct Logger::State {
  explicit State(const Options& options)
      : descriptor(options.descriptor), max_bytes(options.max_queued_bytes), format(options.format) {}

  const int descriptor;
  const size_t max_bytes;
  const Format format;
  std::mutex mutex;
  std::condition_variable wake;  // of the writing thread
  std::condition_variable idle;  // of the destructor
  std::deque<std::string> lines;
  size_t num_bytes = 0;
  uint64_t num_dropped = 0;
  bool ends = false;
  bool has_ended = false;
};

Logger::Logger(Options options)
    : format_(options.format), level_(options.level), state_(std::make_shared<State>(options)) {
  sigset_t all_signals;
  ::sigfillset(&all_signals);
  const BlockedSignals blocked(all_signals);  // they are for the threads of the program
  thread_ = std::thread([state = state_] { run(*state); });
}

Logger::~Logger() {
  bool has_ended = false;
  {
    std::unique_lock lock(state_->mutex);
    state_->ends = true;
    state_->wake.notify_one();
    has_ended = state_->idle.wait_for(lock, kLastWords, [this] { return state_->has_ended; });
  }
  if (has_ended) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void Logger::write(Level level, std::string_view event, std::vector<Json::Member> fields) {
  if (!wants(level)) return;
  std::string line = log_line(format_, system_clock::now(), level, event, std::move(fields));
  {
    const std::lock_guard lock(state_->mutex);
    state_->num_bytes += line.size();
    state_->lines.push_back(std::move(line));
    while (state_->num_bytes > state_->max_bytes && state_->lines.size() > 1) {
      state_->num_bytes -= state_->lines.front().size();
      state_->lines.pop_front();
      ++state_->num_dropped;
    }
  }
  state_->wake.notify_one();
}

// What a failed write loses is lost: there is nowhere to say so.
void Logger::run(State& state) {
  std::unique_lock lock(state.mutex);
  while (true) {
    state.wake.wait(lock, [&state] { return !state.lines.empty() || state.ends; });
    if (state.lines.empty()) break;
    std::string text;
    if (const uint64_t dropped = std::exchange(state.num_dropped, 0); dropped > 0) {
      text = log_line(state.format, system_clock::now(), Level::kWarning, "log_lines_dropped",
                      {{"count", Json::number(static_cast<int64_t>(dropped))}});
    }
    for (const std::string& line : state.lines) text += line;
    state.lines.clear();
    state.num_bytes = 0;
    lock.unlock();
    static_cast<void>(write_all(state.descriptor, text));
    lock.lock();
  }
  state.has_ended = true;
  state.idle.notify_one();
}

}  // namespace kipp::log
