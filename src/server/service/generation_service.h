// The thread that owns the model. Any thread may hand it requests and take them back; what it tells their sinks comes
// from the thread itself.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/batch_engine.h"
#include "kipp/engine.h"
#include "kipp/error.h"
#include "server/service/service_metrics.h"

namespace kipp {

struct ServiceOptions {
  BatchEngineOptions engine = {};
  int32_t max_waiting = 256;  // choices that have no token yet; more are refused
};

// Why a request was not taken.
struct Refusal {
  enum class Kind : uint8_t {
    kInvalid,   // the request itself: error says what is wrong
    kBusy,      // too many wait
    kStopping,  // the service ends
  };
  Kind kind;
  Error error;
  int32_t retry_after_seconds = 0;  // kBusy
};

// Since the service began, and now; the scheduler's as of the last step.
struct ServiceStats {
  SchedulerStats scheduler = {};
  int32_t num_requests = 0;         // taken and not finished
  int32_t num_waiting = 0;          // of these, without a token
  int32_t num_waiting_choices = 0;  // without a token, of all requests
  int32_t num_arriving = 0;         // of these, that the scheduler does not know yet
  uint64_t num_taken = 0;
  uint64_t num_refused_busy = 0;
};

class GenerationService {
 public:
  // The model is the service's while it lives. Errors: those of BatchEngine::create.
  static Result<std::unique_ptr<GenerationService>> start(Model& model, ServiceOptions options = {});
  // Ends what is left, cancelled.
  ~GenerationService();
  GenerationService(const GenerationService&) = delete;
  GenerationService& operator=(const GenerationService&) = delete;

  struct Order {
    BatchRequest request = {};
    std::shared_ptr<BatchSink> sink = {};
    SchedulerTime arrived = std::chrono::steady_clock::now();  // what its times are counted from
  };
  // All of them or none. Returns ids for cancel(), [orders].
  tl::expected<std::vector<uint64_t>, Refusal> submit(std::vector<Order> orders);
  // Takes effect before the next step. Unknown ids are of requests that have ended.
  void cancel(uint64_t id);

  // Refuses what comes from now on; returns true once everything has ended, false at the deadline, where what is left
  // was cancelled.
  bool drain(std::chrono::steady_clock::time_point deadline);

  ServiceStats stats() const;
  const ServiceMetrics& metrics() const { return metrics_; }

 private:
  struct Submission {
    uint64_t id;
    Order order;
  };
  class CountingSink;
  // What came since the last step.
  struct Orders {
    std::vector<Submission> submitted = {};
    std::vector<uint64_t> cancelled = {};
    bool cancels_all = false;
  };

  explicit GenerationService(int32_t max_waiting) : max_waiting_(max_waiting) {}

  void run();
  bool take_orders(Orders& orders);
  void admit(Submission submission);
  void note_step(const SchedulerStats& before);
  void note_first_token(bool of_request);
  void note_finished(const RequestInfo& info, int32_t num_silent_choices, bool had_token);
  int32_t retry_after() const;

  int32_t max_waiting_;
  ServiceMetrics metrics_;
  std::unique_ptr<BatchEngine> engine_;  // of the thread, but for check()

  mutable std::mutex mutex_;
  std::condition_variable wake_;  // of the thread
  std::condition_variable idle_;  // of drain()
  std::vector<Submission> submitted_;
  std::vector<uint64_t> cancelled_;
  ServiceStats stats_;
  uint64_t next_id_ = 1;
  double mean_seconds_ = 1.0;  // from a request's arrival to its own end, of late; those that were cut do not count
  bool cancels_all_ = false;
  bool stopping_ = false;  // no new requests
  bool ends_ = false;      // the thread leaves when nothing is left

  std::thread thread_;  // last: it uses everything above
};

}  // namespace kipp
