// A pool of threads that watch for work for a moment after the last and then sleep. Work is cut into ranges of a fixed
// grain, so that what a range computes never depends on the number of threads.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace kipp {

class ThreadPool {
 public:
  using Body = std::function<void(int64_t begin, int64_t end)>;

  // num_threads >= 1 counts the caller of parallel_for, which works too. Throws std::system_error if the system has no
  // further thread to give; those already started are ended first.
  explicit ThreadPool(int32_t num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int32_t num_threads() const { return static_cast<int32_t>(workers_.size()) + 1; }

  // Calls body over disjoint ranges that cover [0, count), each of `grain` indices (the last may be shorter; one thread
  // alone may get them joined), and returns when all are done; what body wrote is visible then. One caller at a time;
  // body must not call parallel_for. If it throws, ranges that no thread has taken are left out, and the first
  // exception is thrown again here.
  void parallel_for(int64_t count, int64_t grain, const Body& body);

 private:
  struct Job {
    const Body* body;
    int64_t count;
    int64_t grain;
  };

  void work();
  void watch_for_job(uint64_t seen) const;
  void run_ranges(const Job& job) noexcept;
  void stop_workers();

  std::mutex mutex_;
  std::condition_variable wake_;  // workers wait for a job here
  std::condition_variable done_;  // the caller waits here for workers still inside the job
  std::optional<Job> job_;        // the open job; a thread copies it under the lock, since closing it does not wait
  // Changed under the lock, and also read without it by threads that watch before they wait.
  std::atomic<uint64_t> num_jobs_{0};  // opened so far
  std::atomic<int32_t> inside_{0};     // workers inside the open job
  std::atomic<bool> stop_{false};
  std::atomic<int64_t> next_{0};  // first index that no thread has taken
  std::exception_ptr failure_;    // the first one thrown by the open job's body
  std::vector<std::thread> workers_;
};

}  // namespace kipp
