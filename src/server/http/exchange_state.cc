// The queue between a handler and a connection (exchange_state.h).
#include "server/http/exchange_state.h"

#include <utility>

#include "server/http/response.h"

namespace kipp::http {

ExchangeState::ExchangeState(Request request, size_t max_queued_bytes, std::function<void()> wake)
    : request_(std::move(request)), max_queued_bytes_(max_queued_bytes), wake_(std::move(wake)) {}

void ExchangeState::wake_locked() {
  if (wake_ && !wake_pending_) {
    wake_pending_ = true;
    wake_();
  }
}

void ExchangeState::respond(Response response) {
  const std::lock_guard lock(mutex_);
  if (phase_ != Phase::kWaiting || cut_ != Cut::kNone) {
    return;
  }
  phase_ = Phase::kComplete;
  head_ = std::move(response);
  wake_locked();
}

void ExchangeState::begin_stream(Response head) {
  const std::lock_guard lock(mutex_);
  if (phase_ != Phase::kWaiting || cut_ != Cut::kNone) {
    return;
  }
  phase_ = Phase::kStreaming;
  is_stream_ = true;
  bytes_ = std::exchange(head.body, {});
  head_ = std::move(head);
  wake_locked();
}

void ExchangeState::write(std::string piece) {
  const std::lock_guard lock(mutex_);
  if (phase_ != Phase::kStreaming || cut_ != Cut::kNone || piece.empty()) {
    return;
  }
  if (bytes_in_flight_ + bytes_.size() + piece.size() > max_queued_bytes_) {
    cut_ = Cut::kSlow;
    wake_pending_ = false;  // the connection may be stuck in a write, and not take() what it was woken for
  } else if (bytes_.empty()) {
    bytes_ = std::move(piece);
  } else {
    bytes_ += piece;
  }
  wake_locked();
}

void ExchangeState::end_stream() {
  const std::lock_guard lock(mutex_);
  if (phase_ == Phase::kStreaming && cut_ == Cut::kNone) {
    phase_ = Phase::kComplete;
    wake_locked();
  }
}

size_t ExchangeState::queued_bytes() const {
  const std::lock_guard lock(mutex_);
  return cut_ == Cut::kNone ? bytes_in_flight_ + bytes_.size() : 0;
}

bool ExchangeState::is_open() const {
  const std::lock_guard lock(mutex_);
  return cut_ == Cut::kNone && wake_;
}

void ExchangeState::on_closed(std::function<void()> call) {
  {
    const std::lock_guard lock(mutex_);
    if (cut_ == Cut::kNone) {
      std::swap(on_closed_, call);  // the one before ends outside the lock: it may own this exchange
      return;
    }
  }
  call();
}

void ExchangeState::abandon() {
  const std::lock_guard lock(mutex_);
  if (cut_ != Cut::kNone) {
    return;
  }
  if (phase_ == Phase::kWaiting) {
    phase_ = Phase::kComplete;
    head_ = error_response({500, "internal_error", "The server gave no answer."});
    wake_locked();
  } else if (phase_ == Phase::kStreaming) {
    cut_ = Cut::kAbandoned;
    wake_locked();
  }
}

ExchangeState::Output ExchangeState::take() {
  const std::lock_guard lock(mutex_);
  wake_pending_ = false;
  Output output{.head = std::exchange(head_, std::nullopt),
                .is_stream = is_stream_,
                .bytes = std::exchange(bytes_, {}),
                .complete = phase_ == Phase::kComplete,
                .cut = cut_};
  bytes_in_flight_ = output.bytes.size();
  return output;
}

void ExchangeState::taken() {
  const std::lock_guard lock(mutex_);
  bytes_in_flight_ = 0;
}

bool ExchangeState::is_complete() const {
  const std::lock_guard lock(mutex_);
  return phase_ == Phase::kComplete;
}

bool ExchangeState::is_too_slow() const {
  const std::lock_guard lock(mutex_);
  return cut_ == Cut::kSlow;
}

void ExchangeState::close() {
  end(Cut::kClient);
}

bool ExchangeState::end_now() {
  bool is_answered = false;
  {
    const std::lock_guard lock(mutex_);
    if (phase_ == Phase::kComplete) {
      return false;  // it is being sent
    }
    if (phase_ == Phase::kWaiting && cut_ == Cut::kNone) {
      head_ = error_response({503, "shutting_down", "The server is shutting down."});
      phase_ = Phase::kComplete;
      is_answered = true;
    }
  }
  end(Cut::kAbandoned);
  return is_answered;
}

void ExchangeState::end(Cut cut) {
  std::function<void()> call;
  {
    const std::lock_guard lock(mutex_);
    if (cut_ == Cut::kNone) {
      cut_ = cut;
    }
    call = std::exchange(on_closed_, nullptr);
    wake_locked();
  }
  if (call) {
    call();
  }
}

void ExchangeState::detach() {
  std::function<void()> call;
  const std::lock_guard lock(mutex_);
  wake_ = nullptr;
  std::swap(call, on_closed_);
}

}  // namespace kipp::http
