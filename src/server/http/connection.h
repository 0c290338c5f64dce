// One connection from its first byte to its end: requests are read and answered one after the other, in order.
// Everything runs on the thread of one io_context, so there is no lock; only ExchangeState is shared with other
// threads.
#pragma once

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/api_keys.h"
#include "server/http/cors.h"
#include "server/http/counters.h"
#include "server/http/exchange_state.h"
#include "server/http/http_server.h"
#include "server/http/listener.h"
#include "server/http/request_reader.h"
#include "server/http/response.h"

namespace kipp::http {

class Transport;

// What all connections of a server share. Outlives them.
struct ServerContext {
  ServerContext(Options server_options, Handler server_handler)
      : options(std::move(server_options)),
        handler(std::move(server_handler)),
        keys(options.api_keys),
        cors(options.cors_origins) {}

  bool needs_no_key(const RequestHead& head) const {
    return keys.empty() || head.method == "OPTIONS" ||
           std::find(options.open_paths.begin(), options.open_paths.end(), head.path) != options.open_paths.end();
  }

  const Options options;
  const Handler handler;
  const ApiKeys keys;
  const Cors cors;
  Counters counters;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Clock = std::chrono::steady_clock;

  // Owns the socket. `tls`: null for none. All members are called on the thread of `io`.
  Connection(boost::asio::io_context& io, Descriptor socket, int family, std::string peer,
             boost::asio::ssl::context* tls, ServerContext& context);
  ~Connection();

  // Serves requests, or with `is_refused` answers 503 at once; `on_end` is called when the connection has ended.
  void start(bool is_refused, std::function<void()> on_end);
  // Ends when it is idle, else with the answer that is under way.
  void drain() {
    is_draining_ = true;
    event_.cancel();
  }
  void end_now();  // 503 where no answer has begun, else a cut
  void abort();

 private:
  enum class Arrival : uint8_t { kComplete, kRefused, kNothing };

  boost::asio::awaitable<void> run(bool is_refused);
  boost::asio::awaitable<void> read_loop();
  boost::asio::awaitable<bool> serve_request();
  boost::asio::awaitable<Arrival> read_head(RequestReader& reader);
  boost::asio::awaitable<Arrival> read_body(RequestReader& reader);
  boost::asio::awaitable<bool> answer();
  boost::asio::awaitable<void> end_cut_answer(ExchangeState::Cut cut, bool has_head);
  boost::asio::awaitable<bool> send(const Response& response, Framing framing);
  boost::asio::awaitable<bool> send_bytes(const ExchangeState::Output& output, Framing framing);
  boost::asio::awaitable<void> refuse(const Refusal& refusal);
  boost::asio::awaitable<bool> write(std::string_view bytes);
  boost::asio::awaitable<void> wait_until(Clock::time_point deadline);
  boost::asio::awaitable<void> linger();
  boost::asio::awaitable<void> finish();

  void feed(RequestReader& reader);
  void hand_over(RequestReader& reader, int32_t key_index);
  void arm_watchdog(std::chrono::milliseconds limit);
  void disarm_watchdog() {
    ++watchdog_turn_;
    watchdog_.cancel();
  }
  void on_wake();
  void client_gone() {
    if (exchange_) {
      exchange_->close();
    }
  }
  // Not of what a handler has: it knows what becomes of its exchange.
  void tell(const Refusal& refusal) const {
    if (context_.options.on_refusal && !exchange_) {
      context_.options.on_refusal({.status = refusal.status,
                                   .code = refusal.code,
                                   .peer = peer_,
                                   .request_id = request_id_,
                                   .method = request_method_,
                                   .path = request_path_});
    }
  }
  void cut_slow_client();
  void close_socket();

  boost::asio::io_context& io_;
  ServerContext& context_;
  const std::string peer_;
  std::unique_ptr<Transport> transport_;
  boost::asio::steady_timer event_;     // its wait ends when something below has changed
  boost::asio::steady_timer space_;     // its wait ends when there is room in input_
  boost::asio::steady_timer watchdog_;  // ends the connection when a write takes too long
  uint64_t watchdog_turn_ = 0;
  std::function<void()> on_end_;

  std::vector<char> chunk_;  // what the next read fills
  Clock::time_point last_input_;
  std::string input_;           // came, and was not consumed
  bool input_ended_ = false;    // nothing more will come
  bool is_reading_ = false;     // read_loop is under way
  bool is_discarding_ = false;  // what comes does not matter any more
  bool is_finishing_ = false;   // reading ends without being the end of the connection
  bool is_draining_ = false;

  // Of the request that is being read or answered.
  std::shared_ptr<ExchangeState> exchange_;
  std::vector<Header> request_headers_;
  std::string request_id_;
  std::string request_method_;
  std::string request_path_;
  int minor_version_ = 1;
  bool is_head_request_ = false;
  bool keep_alive_ = false;
};

}  // namespace kipp::http
