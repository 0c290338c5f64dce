// What a handler's threads and the I/O thread of a connection share about one answer: a queue with a lock around it.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "server/http/http_server.h"

namespace kipp::http {

class ExchangeState {
 public:
  // `wake` tells the connection that take() has something new: from any thread, under the lock, so it must only post.
  ExchangeState(Request request, size_t max_queued_bytes, std::function<void()> wake);

  // The handler's side: see Exchange.
  const Request& request() const { return request_; }
  void respond(Response response);
  void begin_stream(Response head);
  void write(std::string piece);
  void end_stream();
  size_t queued_bytes() const;
  bool is_open() const;
  void on_closed(std::function<void()> call);
  void abandon();  // the handler dropped the exchange

  // The connection's side, on its I/O thread.
  enum class Cut : uint8_t {
    kNone,
    kClient,     // close() was called
    kSlow,       // more was queued than allowed
    kAbandoned,  // a stream was dropped, or ended by end_now()
  };
  struct Output {
    std::optional<Response> head;  // once
    bool is_stream = false;
    std::string bytes;      // of a stream, since the last take()
    bool complete = false;  // nothing comes after these
    Cut cut = Cut::kNone;
  };
  Output take();
  void taken();              // the system has what the last take() gave
  bool is_complete() const;  // the handler has said all
  bool is_too_slow() const;
  void close();    // the client is gone
  bool end_now();  // 503 (true), or a cut where a stream has begun
  void detach();   // the connection is done with it: no wake any more, and no call of on_closed

 private:
  enum class Phase : uint8_t { kWaiting, kStreaming, kComplete };
  void wake_locked();
  void end(Cut cut);

  const Request request_;
  const size_t max_queued_bytes_;
  mutable std::mutex mutex_;  // of what follows
  std::function<void()> wake_;
  bool wake_pending_ = false;
  Phase phase_ = Phase::kWaiting;
  Cut cut_ = Cut::kNone;
  std::optional<Response> head_;
  bool is_stream_ = false;
  std::string bytes_;
  size_t bytes_in_flight_ = 0;
  std::function<void()> on_closed_;
};

// What the handler gets: its end is the end of the handler's interest.
class ExchangeHandle final : public Exchange {
 public:
  explicit ExchangeHandle(std::shared_ptr<ExchangeState> state) : state_(std::move(state)) {}
  ~ExchangeHandle() override { state_->abandon(); }
  ExchangeHandle(const ExchangeHandle&) = delete;
  ExchangeHandle& operator=(const ExchangeHandle&) = delete;

  const Request& request() const override { return state_->request(); }
  void respond(Response response) override { state_->respond(std::move(response)); }
  void begin_stream(Response head) override { state_->begin_stream(std::move(head)); }
  void write(std::string piece) override { state_->write(std::move(piece)); }
  void end_stream() override { state_->end_stream(); }
  size_t queued_bytes() const override { return state_->queued_bytes(); }
  bool is_open() const override { return state_->is_open(); }
  void on_closed(std::function<void()> call) override { state_->on_closed(std::move(call)); }

 private:
  std::shared_ptr<ExchangeState> state_;
};

}  // namespace kipp::http
