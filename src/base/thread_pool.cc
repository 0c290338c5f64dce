// Workers join an open job when they wake; the caller never waits for one that did not.
#include "base/thread_pool.h"

#include <algorithm>

#include "base/check.h"

namespace kipp {

ThreadPool::ThreadPool(int32_t num_threads) {
  KIPP_CHECK(num_threads >= 1);
  workers_.reserve(static_cast<size_t>(num_threads - 1));
  for (int32_t i = 1; i < num_threads; ++i) {
    workers_.emplace_back([this] { work(); });
  }
}

ThreadPool::~ThreadPool() {
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
  {
    const std::lock_guard lock(mutex_);
    KIPP_CHECK(body_ == nullptr);
    body_ = &body;
    count_ = count;
    grain_ = grain;
    next_.store(0, std::memory_order_relaxed);
    ++job_;
  }
  wake_.notify_all();
  run_ranges();
  std::unique_lock lock(mutex_);
  body_ = nullptr;  // a worker that wakes from here on finds no job
  done_.wait(lock, [this] { return inside_ == 0; });
}

void ThreadPool::run_ranges() {
  while (true) {
    const int64_t begin = next_.fetch_add(grain_, std::memory_order_relaxed);
    if (begin >= count_) {
      return;
    }
    (*body_)(begin, std::min(begin + grain_, count_));
  }
}

void ThreadPool::work() {
  uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return stop_ || (body_ != nullptr && job_ != seen); });
    if (stop_) {
      return;
    }
    seen = job_;
    ++inside_;
    lock.unlock();
    run_ranges();
    lock.lock();
    if (--inside_ == 0) {
      done_.notify_one();
    }
  }
}

}  // namespace kipp
