// A client that sends exactly the bytes that a test gives it, and a server whose handler tests steer by the path.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/http_server.h"
#include "server/http/listener.h"

namespace kipp::http::testing {

using namespace std::chrono_literals;
using Milliseconds = std::chrono::milliseconds;

// Builds with sanitizers are too slow for bounds on time and for the largest bodies.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kIsSanitized = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
inline constexpr bool kIsSanitized = true;
#else
inline constexpr bool kIsSanitized = false;
#endif
#else
inline constexpr bool kIsSanitized = false;
#endif

struct Answer {
  int status = 0;
  std::map<std::string, std::string> headers = {};  // names in lower case; the last of equal ones
  std::string body = {};                            // chunks joined
  bool is_whole = false;                            // it ended as its framing says
};

class RawClient {
 public:
  static RawClient tcp(uint16_t port);  // 127.0.0.1
  static RawClient tcp6(uint16_t port);
  static RawClient unix_socket(const std::string& path);

  bool is_connected() const { return socket_.get() >= 0; }
  int descriptor() const { return socket_.get(); }
  bool send(std::string_view bytes);
  void close_sending_side();
  void close() { socket_ = Descriptor(); }
  // Nothing to read for that long: what was read is what there is.
  std::string read_for(Milliseconds limit);
  // Up to the end of the connection; nullopt if that does not come in time.
  std::optional<std::string> read_to_end(Milliseconds limit = 5s);
  // The next answer of this connection. `has_body`: false behind HEAD.
  Answer read_answer(bool has_body = true, Milliseconds limit = 5s);
  bool is_at_end(Milliseconds limit = 5s);  // nothing is left to read and nothing will come

 private:
  explicit RawClient(Descriptor socket) : socket_(std::move(socket)) {}
  bool read_more(std::chrono::steady_clock::time_point deadline);

  Descriptor socket_;
  std::string buffer_;
};

// The first answer in `bytes`, which it removes; nullopt if it is not whole.
std::optional<Answer> take_answer(std::string& bytes, bool has_body, bool is_at_end);

// Answers by path: /echo: method, target and body, a line each; /stream: three pieces; /quiet: nothing, the exchange is
// dropped; /throw: throws; everything else is held for the test.
class TestServer {
 public:
  explicit TestServer(Options options = {});
  ~TestServer() { held_.clear(); }
  TestServer(const TestServer&) = delete;
  TestServer& operator=(const TestServer&) = delete;

  Server& server() { return *server_; }
  void destroy_server() { server_.reset(); }
  RawClient connect() const { return RawClient::tcp(server_->port()); }
  // Sends one request on a new connection and reads its answer.
  Answer ask(std::string_view bytes) const;
  // The next exchange that was held; fails the test if none comes.
  std::shared_ptr<Exchange> held();
  // The first refusals of that status.
  uint64_t refusals(int status) const;

 private:
  void handle(std::shared_ptr<Exchange> exchange);

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<std::shared_ptr<Exchange>> held_;
  std::unique_ptr<Server> server_;
};

// Waits until it is true.
bool eventually(const std::function<bool()>& condition, Milliseconds limit = 5s);

std::string get(std::string_view path, std::string_view more_headers = "");
std::string post(std::string_view path, std::string_view body);

}  // namespace kipp::http::testing
