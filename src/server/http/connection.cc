// The coroutines of a connection (connection.h).
#include "server/http/connection.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <exception>

#include "server/http/refusals.h"
#include "server/http/request_head.h"
#include "server/http/transport.h"

namespace kipp::http {
namespace {

using namespace std::chrono_literals;

// Bytes that a client may send ahead of what is being answered. While there are more, its going away shows only in
// writes.
constexpr size_t kMaxInputBytes = 64U << 10;
// What is read at once: little while a connection is idle, much while it sends a large body.
constexpr size_t kMinChunkBytes = 4U << 10;
constexpr size_t kMaxChunkBytes = 64U << 10;
// After a refusal what the client still sends is read and dropped: closing earlier would make the system reset the
// connection, and the client lose the answer (RFC 9112, 9.6).
constexpr auto kLingerTotal = 5s;
constexpr auto kLingerIdle = 1s;

}  // namespace

Connection::Connection(asio::io_context& io, Descriptor socket, int family, std::string peer, asio::ssl::context* tls,
                       ServerContext& context)
    : io_(io),
      context_(context),
      peer_(std::move(peer)),
      event_(io),
      space_(io),
      watchdog_(io),
      chunk_(kMinChunkBytes) {
  Transport::Socket asio_socket(io);
  error_code error;
  asio_socket.assign(asio::generic::stream_protocol(family, 0), socket.get(), error);
  if (!error) {
    socket.release();
  }
  if (tls != nullptr) {
    transport_ = std::make_unique<TlsTransport>(std::move(asio_socket), *tls);
  } else {
    transport_ = std::make_unique<Transport>(std::move(asio_socket));
  }
}

Connection::~Connection() {
  if (exchange_) {
    exchange_->detach();
  }
}

void Connection::start(bool is_refused, std::function<void()> on_end) {
  on_end_ = std::move(on_end);
  asio::co_spawn(
      io_, [self = shared_from_this(), is_refused] { return self->run(is_refused); },
      [self = shared_from_this()](const std::exception_ptr&) {  // only memory that has run out throws
        self->close_socket();
        self->client_gone();
        self->on_end_();
      });
}

asio::awaitable<void> Connection::run(bool is_refused) {
  arm_watchdog(context_.options.header_timeout);
  const error_code error = co_await transport_->handshake();
  disarm_watchdog();
  if (error) {
    co_return;
  }
  is_reading_ = true;
  asio::co_spawn(
      io_, [self = shared_from_this()] { return self->read_loop(); },
      [self = shared_from_this()](const std::exception_ptr&) {
        self->is_reading_ = false;
        self->input_ended_ = true;
        self->event_.cancel();
      });
  if (is_refused) {
    co_await refuse(kTooManyConnections);
  } else {
    while (co_await serve_request()) {
    }
  }
  co_await finish();
}

// Goes on while an answer is made or streamed: that is how a client that goes away is noticed.
asio::awaitable<void> Connection::read_loop() {
  const size_t max_bytes = std::max(kMaxInputBytes, context_.options.max_header_bytes);
  for (;;) {
    while (input_.size() >= max_bytes && !is_discarding_ && transport_->socket().is_open()) {
      space_.expires_after(24h);
      co_await space_.async_wait(kUseTuple);
    }
    const auto [error, num_bytes] = co_await transport_->read_some(asio::buffer(chunk_));
    if (error) {
      if (is_finishing_) {
        co_return;
      }
      const bool is_end = error == asio::error::eof || error == asio::ssl::error::stream_truncated;
      input_ended_ = true;
      if (exchange_ && !(is_end && exchange_->is_complete())) {
        client_gone();
      }
      if (!is_end) {
        close_socket();
      }
      event_.cancel();
      co_return;
    }
    last_input_ = Clock::now();
    if (!is_discarding_) {
      input_.append(chunk_.data(), num_bytes);
    }
    event_.cancel();
    if (num_bytes == chunk_.size() && num_bytes < kMaxChunkBytes) {
      chunk_.resize(2 * num_bytes);
    } else if (num_bytes < kMinChunkBytes && chunk_.size() > kMinChunkBytes) {
      chunk_ = std::vector<char>(kMinChunkBytes);
    }
  }
}

asio::awaitable<void> Connection::wait_until(Clock::time_point deadline) {
  event_.expires_at(deadline);
  co_await event_.async_wait(kUseTuple);
}

void Connection::feed(RequestReader& reader) {
  const size_t consumed = reader.feed(input_);
  input_.erase(0, consumed);
  space_.cancel();
}

asio::awaitable<Connection::Arrival> Connection::read_head(RequestReader& reader) {
  const Clock::time_point idle_deadline = Clock::now() + context_.options.idle_timeout;
  Clock::time_point deadline = idle_deadline;
  bool has_begun = false;
  for (;;) {
    while (reader.state() == RequestReader::State::kHead && !input_.empty()) {
      const size_t before = input_.size();
      feed(reader);
      if (input_.size() == before) {
        break;
      }
    }
    if (reader.state() != RequestReader::State::kHead) {
      co_return Arrival::kComplete;
    }
    if (!has_begun && !input_.empty()) {
      has_begun = true;
      deadline = Clock::now() + context_.options.header_timeout;
    }
    if (input_ended_ && has_begun) {
      co_await refuse(kHeadersCutShort);
      co_return Arrival::kRefused;
    }
    if (!has_begun && (input_ended_ || is_draining_ || Clock::now() >= deadline)) {
      co_return Arrival::kNothing;
    }
    if (Clock::now() >= deadline) {
      co_await refuse(kHeadersTooSlow);
      co_return Arrival::kRefused;
    }
    co_await wait_until(deadline);
  }
}

asio::awaitable<Connection::Arrival> Connection::read_body(RequestReader& reader) {
  if (reader.head().expects_continue && reader.state() == RequestReader::State::kBody && input_.empty()) {
    if (!co_await write("HTTP/1.1 100 Continue\r\n\r\n")) {
      co_return Arrival::kNothing;
    }
  }
  const Clock::time_point deadline = Clock::now() + context_.options.body_timeout;
  for (;;) {
    if (reader.state() == RequestReader::State::kBody && !input_.empty()) {
      feed(reader);
    }
    if (reader.state() == RequestReader::State::kRefused) {
      co_await refuse(reader.refusal());
      co_return Arrival::kRefused;
    }
    if (reader.state() == RequestReader::State::kDone) {
      co_return Arrival::kComplete;
    }
    if (input_ended_) {
      co_await refuse(kBodyCutShort);
      co_return Arrival::kRefused;
    }
    if (Clock::now() >= deadline) {
      co_await refuse(kBodyTooSlow);
      co_return Arrival::kRefused;
    }
    co_await wait_until(deadline);
  }
}

// False: the connection is at its end.
asio::awaitable<bool> Connection::serve_request() {
  RequestReader reader(context_.options.max_header_bytes, context_.options.max_body_bytes);
  request_headers_.clear();
  request_id_.clear();
  request_method_.clear();
  request_path_.clear();
  minor_version_ = 1;
  is_head_request_ = false;
  keep_alive_ = false;
  if (co_await read_head(reader) != Arrival::kComplete) {
    co_return false;
  }
  if (reader.has_head()) {
    request_headers_ = reader.head().headers;
    request_id_ = request_id(request_headers_);
    request_method_ = reader.head().method;
    request_path_ = reader.head().path;
    minor_version_ = reader.head().minor_version;
    is_head_request_ = reader.head().method == "HEAD";
  }
  if (reader.state() == RequestReader::State::kRefused) {
    co_await refuse(reader.refusal());
    co_return false;
  }
  // Before the body comes: nobody uploads for a refusal.
  const std::optional<int32_t> key_index = context_.keys.find(request_headers_);
  if (!key_index && !context_.needs_no_key(reader.head())) {
    co_await refuse(kNoKey);
    co_return false;
  }
  if (co_await read_body(reader) != Arrival::kComplete) {
    co_return false;
  }
  keep_alive_ = reader.head().keep_alive;
  if (reader.head().method == "OPTIONS") {
    co_return co_await send(context_.cors.preflight(request_headers_), Framing::kLength) && keep_alive_ &&
        !is_draining_;
  }
  hand_over(reader, key_index.value_or(-1));
  const bool goes_on = co_await answer();
  exchange_->detach();
  exchange_.reset();
  co_return goes_on;
}

void Connection::hand_over(RequestReader& reader, int32_t key_index) {
  RequestHead head = reader.take_head();
  Request request{.method = is_head_request_ ? "GET" : std::move(head.method),
                  .path = std::move(head.path),
                  .query = std::move(head.query),
                  .headers = std::move(head.headers),
                  .body = reader.take_body(),
                  .peer = peer_,
                  .id = request_id_,
                  .key_index = key_index,
                  .received = Clock::now()};
  exchange_ = std::make_shared<ExchangeState>(std::move(request), context_.options.max_queued_bytes,
                                              [weak = weak_from_this(), &io = io_] {
                                                asio::post(io, [weak] {
                                                  if (const std::shared_ptr<Connection> self = weak.lock()) {
                                                    self->on_wake();
                                                  }
                                                });
                                              });
  ++context_.counters.requests;
  auto handle = std::make_shared<ExchangeHandle>(exchange_);
  try {
    context_.handler(std::move(handle));
  } catch (...) {
    exchange_->abandon();  // 500 if nothing was said, else a cut
  }
}

// Sends what the handler says until that was all. False: the connection is at its end.
asio::awaitable<bool> Connection::answer() {
  if (input_ended_ && !exchange_->is_complete()) {
    client_gone();
  }
  Framing framing = Framing::kLength;
  bool has_head = false;
  bool wants_bytes = false;
  for (;;) {
    const ExchangeState::Output output = exchange_->take();
    const bool is_whole = output.head && !output.is_stream;  // sent even where it says that the server shuts down
    if (output.cut != ExchangeState::Cut::kNone && !is_whole) {
      co_await end_cut_answer(output.cut, has_head);
      co_return false;
    }
    if (output.head) {
      has_head = true;
      framing = !output.is_stream ? Framing::kLength : minor_version_ >= 1 ? Framing::kChunked : Framing::kClose;
      wants_bytes = output.is_stream && !is_head_request_ && may_have_body(output.head->status);
      keep_alive_ = keep_alive_ && framing != Framing::kClose;
      if (!co_await send(*output.head, framing)) {
        co_return false;
      }
    }
    if (wants_bytes && !co_await send_bytes(output, framing)) {
      co_return false;
    }
    exchange_->taken();
    if (output.complete) {
      co_return keep_alive_ && !is_draining_;
    }
    if (has_head && !wants_bytes) {
      client_gone();  // HEAD: it has all that it wants
      co_return keep_alive_ && !is_draining_;
    }
    if (!output.head && output.bytes.empty()) {
      co_await wait_until(Clock::now() + 24h);
    }
  }
}

// A client that has closed its side for sending may still listen; one that has gone does not mind the answer.
asio::awaitable<void> Connection::end_cut_answer(ExchangeState::Cut cut, bool has_head) {
  if (cut == ExchangeState::Cut::kSlow) {
    cut_slow_client();
  }
  client_gone();
  if (cut == ExchangeState::Cut::kClient && !has_head && transport_->socket().is_open()) {
    co_await refuse(kClientClosed);
  }
}

asio::awaitable<bool> Connection::send_bytes(const ExchangeState::Output& output, Framing framing) {
  if (framing != Framing::kChunked) {
    co_return co_await write(output.bytes);
  }
  std::string chunk;
  if (!output.bytes.empty()) {
    chunk = fmt::format("{:x}\r\n", output.bytes.size());
    chunk.reserve(chunk.size() + output.bytes.size() + 8);
    chunk.append(output.bytes).append("\r\n");
  }
  if (output.complete) {
    chunk += "0\r\n\r\n";
  }
  co_return co_await write(chunk);
}

// The head, and a whole answer's body.
asio::awaitable<bool> Connection::send(const Response& response, Framing framing) {
  context_.counters.add_response(response.status);
  std::vector<Header> more;
  if (!request_id_.empty()) {
    more.push_back({"X-Request-Id", request_id_});
  }
  context_.cors.add_headers(request_headers_, more);
  const HeadOptions options{.framing = framing,
                            .keep_alive = keep_alive_ && !is_draining_,
                            .minor_version = minor_version_,
                            .more = std::move(more)};
  std::string bytes = serialize_head(response, options);
  const bool has_body = framing == Framing::kLength && !is_head_request_ && may_have_body(response.status);
  if (!has_body) {
    co_return co_await write(bytes);
  }
  // One packet for what is small; what is large is not copied.
  constexpr size_t kMaxCopiedBytes = 64U << 10;
  if (response.body.size() <= kMaxCopiedBytes) {
    bytes += response.body;
    co_return co_await write(bytes);
  }
  co_return co_await write(bytes) && co_await write(response.body);
}

asio::awaitable<void> Connection::refuse(const Refusal& refusal) {
  context_.counters.add_refusal(refusal.status);
  tell(refusal);
  keep_alive_ = false;
  Response response = error_response(refusal);
  if (refusal.status == 503) {
    response.headers.push_back({"Retry-After", "1"});
  } else if (refusal.status == 401) {
    response.headers.push_back({"WWW-Authenticate", "Bearer"});
  }
  if (co_await send(response, Framing::kLength)) {
    co_await linger();
  }
}

asio::awaitable<void> Connection::linger() {
  is_discarding_ = true;
  input_.clear();
  space_.cancel();
  if (!transport_->is_tls()) {
    error_code ignored;
    transport_->socket().shutdown(asio::socket_base::shutdown_send, ignored);
  }
  const Clock::time_point end = Clock::now() + kLingerTotal;
  last_input_ = Clock::now();
  while (!input_ended_ && Clock::now() < std::min(end, last_input_ + kLingerIdle)) {
    co_await wait_until(std::min(end, last_input_ + kLingerIdle));
  }
}

// False: the client is gone, or too slow.
asio::awaitable<bool> Connection::write(std::string_view bytes) {
  while (!bytes.empty()) {
    arm_watchdog(context_.options.write_timeout);
    const auto [error, num_bytes] = co_await transport_->write_some(bytes);
    disarm_watchdog();
    if (error) {
      client_gone();
      close_socket();
      co_return false;
    }
    bytes.remove_prefix(num_bytes);
  }
  co_return true;
}

asio::awaitable<void> Connection::finish() {
  is_finishing_ = true;
  if (!transport_->is_tls() || !transport_->socket().is_open()) {
    co_return;
  }
  error_code ignored;
  transport_->socket().cancel(ignored);
  space_.cancel();
  while (is_reading_) {
    co_await wait_until(Clock::now() + kLingerIdle);
  }
  arm_watchdog(kLingerIdle);
  co_await transport_->say_end();
  disarm_watchdog();
}

void Connection::arm_watchdog(std::chrono::milliseconds limit) {
  watchdog_.expires_after(limit);
  watchdog_.async_wait([weak = weak_from_this(), turn = watchdog_turn_](const error_code& error) {
    const std::shared_ptr<Connection> self = weak.lock();
    // A timer that has expired cannot be taken back: the turn says whether the wait was over before it ran.
    if (error || !self || self->watchdog_turn_ != turn) {
      return;
    }
    if (self->exchange_) {
      self->cut_slow_client();
    } else {
      self->close_socket();
    }
  });
}

void Connection::on_wake() {
  if (exchange_ && exchange_->is_too_slow()) {
    cut_slow_client();
  }
  event_.cancel();
}

// Without waiting until it has read what the system holds for it.
void Connection::cut_slow_client() {
  if (transport_->socket().is_open()) {
    ++context_.counters.slow_clients;
    error_code ignored;
    transport_->socket().set_option(asio::socket_base::linger(true, 0), ignored);
  }
  client_gone();
  close_socket();
}

void Connection::close_socket() {
  error_code ignored;
  transport_->socket().close(ignored);
  event_.cancel();
  space_.cancel();
}

void Connection::end_now() {
  drain();
  if (!exchange_) {
    abort();
  } else if (exchange_->end_now()) {
    context_.counters.add_refusal(503);
  }
}

void Connection::abort() {
  client_gone();
  close_socket();
}

}  // namespace kipp::http
