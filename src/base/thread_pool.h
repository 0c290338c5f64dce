// A pool of threads that watch for work for a moment after the last and then sleep. Work is cut into ranges of a fixed
// grain, so that what a range computes never depends on the number of threads.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
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
  // A grain for `count` items of about `item_cost` each: ranges that cost `range_cost` at least, several for each
  // thread, so that a late one holds up little, and whole cache lines of floats, so that two threads rarely write the
  // same one.
  int64_t grain_for(int64_t count, int64_t item_cost, int64_t range_cost) const;

 private:
  struct Job {
    const Body* body = nullptr;
    int64_t count = 0;
    int64_t grain = 1;
  };

  void work();
  bool join_job(uint64_t& seen);
  void leave_job();
  void close_job();
  void run_ranges(const Job& job) noexcept;
  void stop_workers();

  // Which job it is, whether threads may still join it, and how many workers are inside (thread_pool.cc). Workers join
  // and leave without a lock: with sixteen of them and a hundred jobs a token, a lock would cost more than the work.
  std::atomic<uint64_t> state_{0};
  Job job_;                             // written while no worker is inside
  std::atomic<int64_t> next_{0};        // first index that no thread has taken
  std::atomic<int32_t> num_asleep_{0};  // workers that wait, or are about to
  std::atomic<bool> caller_asleep_{false};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;              // of what follows, and of falling asleep
  std::condition_variable wake_;  // workers wait for a job here
  std::condition_variable done_;  // the caller waits here for workers still inside the job
  std::exception_ptr failure_;    // the first one thrown by the open job's body
  std::vector<std::thread> workers_;
};

}  // namespace kipp
