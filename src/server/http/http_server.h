// An HTTP/1.1 server: requests in, whole or streamed answers out. It knows nothing of models or of any API: a handler
// decides what a request means. Everything that can be refused by looking at bytes is answered here, with a body like
// {"error": {"message", "type", "param", "code"}}.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kipp/error.h"

namespace kipp::http {

struct Header {
  std::string name;
  std::string value;
};

struct Request {
  std::string method;           // as sent; HEAD arrives as GET, and the server leaves out the body of the answer
  std::string path;             // as sent, not percent-decoded; from "/" on
  std::string query;            // behind "?", without it
  std::vector<Header> headers;  // names in lower case, in their order; trailers of a chunked body are dropped
  std::string body;
  std::string peer;                                // "127.0.0.1:50000", "[::1]:50000" or "unix"
  std::string id;                                  // X-Request-Id: the client's if it is sane, else made
  int32_t key_index = -1;                          // which of Options::api_keys it came with; -1: none was needed
  std::chrono::steady_clock::time_point received;  // when its last byte came

  // The first value of a header by its name in lower case; nullptr if there is none.
  const std::string* find_header(std::string_view name) const;
};

struct Response {
  int status = 200;
  std::vector<Header> headers = {};  // Date, framing, Connection, X-Request-Id and CORS headers are added by the server
  std::string body = {};
  std::string content_type = "application/json";  // empty: none
};

// One request and its answer. All members may be called from any thread; none blocks. After the client is gone, and
// after the server is destroyed, they do nothing. Destroyed unanswered, the client gets 500; destroyed within a stream,
// the connection is cut, so that the client sees an answer without its end.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual const Request& request() const = 0;
  virtual void respond(Response response) = 0;   // once, whole
  virtual void begin_stream(Response head) = 0;  // status and headers; a body is the first piece
  virtual void write(std::string piece) = 0;     // queued; what is queued together is sent together
  virtual void end_stream() = 0;
  virtual size_t queued_bytes() const = 0;  // of write()s that the system has not taken
  virtual bool is_open() const = 0;         // false once the client is known to be gone
  // Calls `call` at most once, if the client goes away (also by closing only its sending side), is too slow, or is
  // disconnected at the end of a drain, before it was sent the whole answer: from an I/O thread, or, if that has
  // happened already, before on_closed returns. It must not block. Dropped once the answer is sent.
  virtual void on_closed(std::function<void()> call) = 0;
};

// Called on an I/O thread: must not block.
using Handler = std::function<void(std::shared_ptr<Exchange>)>;

// A request, or a connection, that the server itself refused, before any handler saw it.
struct RefusedRequest {
  int status;
  std::string_view code;        // of the body's error
  std::string_view peer;        // as in Request
  std::string_view request_id;  // empty: its headers were not read
  std::string_view method;      // the same
  std::string_view path;        // the same
};

struct Options {
  std::string host = "127.0.0.1";    // address or name; "::" is every address of both families; empty: no TCP
  uint16_t port = 0;                 // 0: any free one, see Server::port
  std::string unix_socket = {};      // a path; empty: none. Never TLS. Replaced if nobody listens there
  std::string tls_certificate = {};  // PEM files: the chain, and its key without a passphrase; both or none
  std::string tls_key = {};
  int32_t num_threads = 2;

  size_t max_header_bytes = 32U << 10;
  size_t max_body_bytes = 64U << 20;
  size_t max_connections = 4096;                   // more are answered 503
  size_t max_queued_bytes = 4U << 20;              // of a stream; a client that lags further behind is cut off
  std::chrono::milliseconds idle_timeout{75'000};  // between requests
  std::chrono::milliseconds header_timeout{
      10'000};  // from a request's first byte to the end of its headers; TLS handshake
  std::chrono::milliseconds body_timeout{60'000};   // for the whole body
  std::chrono::milliseconds write_timeout{30'000};  // without the client taking a byte

  std::vector<std::string> cors_origins = {};         // exact origins, or "*"
  std::vector<std::string> api_keys = {};             // none: no key is asked for
  std::vector<std::string> open_paths = {"/health"};  // need no key; neither does OPTIONS

  std::function<void(const RefusedRequest&)> on_refusal = {};  // on an I/O thread: must not block
};

struct Statistics {
  size_t open_connections = 0;
  uint64_t connections = 0;           // accepted, ever
  uint64_t requests = 0;              // handed to the handler
  uint64_t slow_clients = 0;          // cut off because they did not read
  std::map<int, uint64_t> responses;  // begun, by status; refusals are among them
  std::map<int, uint64_t> refusals;   // answered by the server itself, by status; 2xx are not counted
};

class Server {
 public:
  // Listens when it returns. Errors: addresses, files of the socket and of TLS, options that make no sense.
  static Result<std::unique_ptr<Server>> start(Options options, Handler handler);
  // Drains with a deadline that has passed, and ends its threads. Not to be called on an I/O thread.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  uint16_t port() const;  // 0: none
  Statistics statistics() const;

  // New connections are refused by the system, idle ones are closed, and those that are busy end with the answer that
  // they are waiting for.
  void stop_accepting();
  // Stops accepting and waits until all connections have ended; returns whether they had by the deadline. Those that
  // had not are ended then: 503 where no answer had begun, a cut where one had (whoever writes the stream can end it
  // better, before the deadline). Not to be called on an I/O thread.
  bool drain(std::chrono::steady_clock::time_point deadline);

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kipp::http
