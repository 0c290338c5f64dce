// See workers.h. Tasks are taken in the order in which they came.
#include "server/api/workers.h"

#include <utility>

namespace kipp::api {

Workers::Workers(int32_t num_threads, size_t max_waiting) : max_waiting_(max_waiting) {
  for (int32_t i = 0; i < num_threads; ++i) threads_.emplace_back([this] { run(); });
}

Workers::~Workers() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    tasks_.clear();
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool Workers::post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    if (tasks_.size() >= max_waiting_) return false;
    tasks_.push_back(std::move(task));
  }
  wake_.notify_one();
  return true;
}

void Workers::run() {
  while (true) {
    std::function<void()> task;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return ends_ || !tasks_.empty(); });
      if (ends_) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    try {
      task();
    } catch (...) {  // out of memory, say: what the task held is dropped, and its client told
    }
  }
}

}  // namespace kipp::api
