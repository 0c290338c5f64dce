// What a server counts, from all of its threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>

#include "server/http/http_server.h"

namespace kipp::http {

class Counters {
 public:
  std::atomic<size_t> open_connections{0};
  std::atomic<uint64_t> connections{0};
  std::atomic<uint64_t> requests{0};
  std::atomic<uint64_t> slow_clients{0};

  void add_refusal(int status) {
    const std::lock_guard lock(mutex_);
    ++refusals_[status];
  }

  void add_response(int status) {
    const std::lock_guard lock(mutex_);
    ++responses_[status];
  }

  Statistics snapshot() const {
    const std::lock_guard lock(mutex_);
    return {.open_connections = open_connections,
            .connections = connections,
            .requests = requests,
            .slow_clients = slow_clients,
            .responses = responses_,
            .refusals = refusals_};
  }

 private:
  mutable std::mutex mutex_;
  std::map<int, uint64_t> responses_;
  std::map<int, uint64_t> refusals_;
};

}  // namespace kipp::http
