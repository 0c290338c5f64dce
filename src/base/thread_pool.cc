// Workers join an open job when they wake; the caller never waits for one that did not.
#include "base/thread_pool.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "base/blocked_signals.h"
#include "base/check.h"

namespace kipp {
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
  job_.reset();  // a worker that wakes from here on finds no job
  done_.wait(lock, [this] { return inside_ == 0; });
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
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return stop_ || (job_ && num_jobs_ != seen); });
    if (stop_) {
      return;
    }
    seen = num_jobs_;
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

}  // namespace kipp
