// Workers join an open job when they see it; the caller never waits for one that did not. A decode step opens a hundred
// jobs a few microseconds apart, and waking a sleeper takes longer than that: so a thread watches first.
#include "base/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <utility>

#include "base/blocked_signals.h"
#include "base/check.h"

namespace kipp {
namespace {

// The state's lowest bits count the workers inside, one bit says that the job is open, the others number the jobs.
constexpr uint64_t kOpen = uint64_t{1} << 15;
constexpr uint64_t kNumber = uint64_t{1} << 16;

// Longer than what a forward pass does on one thread between two jobs, shorter than a person's or a scheduler's notice.
constexpr std::chrono::microseconds kWatch{100};

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Watches until `done` or until watching is not worth it any more.
template <typename Done>
void watch(const Done& done) {
  constexpr int kLooksPerClock = 64;
  const auto deadline = std::chrono::steady_clock::now() + kWatch;
  do {
    for (int i = 0; i < kLooksPerClock; ++i) {
      if (done()) {
        return;
      }
      pause();
    }
  } while (std::chrono::steady_clock::now() < deadline);
}

}  // namespace

ThreadPool::ThreadPool(int32_t num_threads) {
  KIPP_CHECK(num_threads >= 1);
  workers_.reserve(static_cast<size_t>(num_threads - 1));
  // Workers take no signals: those are for the program's own threads, whose waits they must end.
  sigset_t all;
  sigfillset(&all);
  const BlockedSignals blocked(all);
  try {
    for (int32_t i = 1; i < num_threads; ++i) {
      workers_.emplace_back([this] { work(); });
    }
  } catch (...) {
    stop_workers();  // a joinable std::thread must not be destroyed
    throw;
  }
}

ThreadPool::~ThreadPool() {
  stop_workers();
}

void ThreadPool::stop_workers() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) {
    worker.join();
  }
}

void ThreadPool::parallel_for(int64_t count, int64_t grain, const Body& body) {
  KIPP_CHECK(grain >= 1);
  if (count <= 0) {
    return;
  }
  if (workers_.empty() || count <= grain) {
    body(0, count);
    return;
  }
  const uint64_t last = state_.load();
  KIPP_CHECK(last % kNumber == 0);  // one caller at a time, and none inside a body
  job_ = {&body, count, grain};
  next_.store(0, std::memory_order_relaxed);
  state_.store(last + kNumber + kOpen);
  if (num_asleep_.load() > 0) {
    {
      const std::lock_guard lock(mutex_);
    }  // a worker that did not see the job is waiting by now
    wake_.notify_all();
  }
  run_ranges(job_);
  close_job();
  if (failure_) {
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
}

int64_t ThreadPool::grain_for(int64_t count, int64_t item_cost, int64_t range_cost) const {
  constexpr int64_t kRangesPerThread = 4;
  constexpr int64_t kAlignment = 16;  // floats in a cache line
  const int64_t worthwhile = range_cost / std::max<int64_t>(item_cost, 1) + 1;
  const int64_t balanced = count / (num_threads() * kRangesPerThread);
  const int64_t grain = std::max(worthwhile, balanced);
  return grain > kAlignment ? (grain + kAlignment - 1) / kAlignment * kAlignment : grain;
}

// Workers that come from here on find no job; those inside are waited for.
void ThreadPool::close_job() {
  state_.fetch_sub(kOpen);
  const auto none_inside = [this] { return state_.load() % kNumber == 0; };
  watch(none_inside);
  if (none_inside()) {
    return;
  }
  std::unique_lock lock(mutex_);
  caller_asleep_ = true;
  done_.wait(lock, none_inside);
  caller_asleep_ = false;
}

void ThreadPool::run_ranges(const Job& job) noexcept {
  try {
    while (true) {
      const int64_t begin = next_.fetch_add(job.grain, std::memory_order_relaxed);
      if (begin >= job.count) {
        return;
      }
      (*job.body)(begin, std::min(begin + job.grain, job.count));
    }
  } catch (...) {
    next_.store(job.count, std::memory_order_relaxed);
    const std::lock_guard lock(mutex_);
    if (!failure_) {
      failure_ = std::current_exception();
    }
  }
}

// True: this worker is inside a job that it has not seen before.
bool ThreadPool::join_job(uint64_t& seen) {
  uint64_t state = state_.load();
  while (state / kNumber != seen && state % kNumber >= kOpen) {
    if (state_.compare_exchange_weak(state, state + 1)) {
      seen = state / kNumber;
      return true;
    }
  }
  return false;
}

void ThreadPool::leave_job() {
  const uint64_t before = state_.fetch_sub(1);
  if (before % kNumber == 1 && caller_asleep_.load()) {
    {
      const std::lock_guard lock(mutex_);
    }
    done_.notify_one();
  }
}

void ThreadPool::work() {
  uint64_t seen = 0;
  while (true) {
    bool inside = false;
    const auto has_work = [&] { return stop_.load() || (inside = inside || join_job(seen)); };
    watch(has_work);
    if (!inside && !stop_.load()) {
      std::unique_lock lock(mutex_);
      ++num_asleep_;
      wake_.wait(lock, has_work);
      --num_asleep_;
    }
    if (!inside) {
      return;  // stopped
    }
    run_ranges(job_);
    leave_job();
  }
}

}  // namespace kipp
