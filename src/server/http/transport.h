// A connected socket with or without TLS, for coroutines. Private to connection.cc: whoever includes it compiles Asio.
#pragma once

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <string_view>
#include <utility>

namespace kipp::http {

namespace asio = boost::asio;
using boost::system::error_code;
inline constexpr auto kUseTuple = asio::as_tuple(asio::use_awaitable);  // errors as values, not as exceptions

class Transport {
 public:
  using Socket = asio::generic::stream_protocol::socket;
  using Transferred = std::tuple<error_code, size_t>;

  explicit Transport(Socket socket) : socket_(std::move(socket)) {}
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  Socket& socket() { return socket_; }
  // One read and one write may be under way at the same time.
  virtual asio::awaitable<Transferred> read_some(asio::mutable_buffer to) {
    co_return co_await socket_.async_read_some(to, kUseTuple);
  }
  virtual asio::awaitable<Transferred> write_some(std::string_view from) {
    co_return co_await socket_.async_write_some(asio::buffer(from), kUseTuple);
  }
  virtual bool is_tls() const { return false; }
  virtual asio::awaitable<error_code> handshake() { co_return error_code(); }
  // Tells the peer that nothing more comes, so that it can tell an end from a cut. No read may be under way.
  virtual asio::awaitable<void> say_end() { co_return; }

 private:
  Socket socket_;
};

class TlsTransport final : public Transport {
 public:
  TlsTransport(Socket socket, asio::ssl::context& context)
      : Transport(std::move(socket)), stream_(this->socket(), context) {}

  asio::awaitable<Transferred> read_some(asio::mutable_buffer to) override {
    co_return co_await stream_.async_read_some(to, kUseTuple);
  }
  asio::awaitable<Transferred> write_some(std::string_view from) override {
    co_return co_await stream_.async_write_some(asio::buffer(from), kUseTuple);
  }
  bool is_tls() const override { return true; }
  asio::awaitable<error_code> handshake() override {
    auto [error] = co_await stream_.async_handshake(asio::ssl::stream_base::server, kUseTuple);
    co_return error;
  }
  asio::awaitable<void> say_end() override { co_await stream_.async_shutdown(kUseTuple); }

 private:
  asio::ssl::stream<Socket&> stream_;
};

}  // namespace kipp::http
