// A few threads for what an I/O thread must not do: reading large bodies, encoding long texts.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace kipp::api {

class Workers {
 public:
  Workers(int32_t num_threads, size_t max_waiting);
  ~Workers();  // what waits is dropped
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // False: too many wait already.
  bool post(std::function<void()> task);

 private:
  void run();

  size_t max_waiting_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool ends_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace kipp::api
