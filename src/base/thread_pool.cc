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
  const Job job{&body, count, grain};
  {
    const std::lock_guard lock(mutex_);
    KIPP_CHECK(!job_);
    job_ = job;
    ++num_jobs_;
    next_.store(0, std::memory_order_relaxed);
  }
  wake_.notify_all();
  run_ranges(job);
  std::unique_lock lock(mutex_);
  job_.reset();  // a worker that comes from here on finds no job
  if (inside_ != 0) {
    lock.unlock();
    watch([this] { return inside_.load(std::memory_order_relaxed) == 0; });
    lock.lock();
    done_.wait(lock, [this] { return inside_ == 0; });
  }
  if (failure_) {
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
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

void ThreadPool::work() {
  uint64_t seen = 0;
  while (true) {
    watch_for_job(seen);
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] { return stop_ || num_jobs_ != seen; });
    if (stop_) {
      return;
    }
    seen = num_jobs_;
    if (!job_) {
      continue;  // the others were done before this thread came
    }
    const Job job = *job_;
    ++inside_;
    lock.unlock();
    run_ranges(job);
    lock.lock();
    if (--inside_ == 0) {
      done_.notify_one();
    }
  }
}

void ThreadPool::watch_for_job(uint64_t seen) const {
  watch([this, seen] {
    return num_jobs_.load(std::memory_order_relaxed) != seen || stop_.load(std::memory_order_relaxed);
  });
}

}  // namespace kipp
