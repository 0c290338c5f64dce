// Any bytes on a connection: the reader says the same of them whole and in pieces, and a real server answers as the
// reader said, or closes the connection; it never leaves the client waiting.
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "fuzz/require.h"
#include "server/http/http_server.h"
#include "server/http/listener.h"
#include "server/http/request_reader.h"

namespace {

using kipp::fuzzing::require;
using kipp::http::RequestReader;
using State = RequestReader::State;

constexpr size_t kMaxHeaders = 2048;
constexpr size_t kMaxBody = 4096;

struct Verdict {
  State state = State::kHead;
  int status = 0;
  size_t consumed = 0;
  std::string body = {};
};

Verdict read(std::string_view bytes, size_t step) {
  RequestReader reader(kMaxHeaders, kMaxBody);
  size_t consumed = 0;
  size_t seen = 0;
  while (reader.state() == State::kHead || reader.state() == State::kBody) {
    const size_t now = reader.feed(bytes.substr(consumed, seen - consumed));
    require(now <= seen - consumed);
    consumed += now;
    if (now == 0 || consumed == seen) {
      if (seen == bytes.size() && now == 0) {
        break;
      }
      seen = std::min(seen + step, bytes.size());
    }
  }
  Verdict verdict{.state = reader.state(), .status = reader.refusal().status, .consumed = consumed};
  if (reader.state() == State::kDone) {
    verdict.body = reader.take_body();
    require(verdict.body.size() <= kMaxBody && !reader.head().path.empty());
  } else if (reader.state() == State::kRefused) {
    require(verdict.status >= 400 && !reader.refusal().message.empty() && !reader.refusal().code.empty());
  }
  return verdict;
}

// On a Unix socket: a port for each of millions of connections would not do.
class FuzzedServer {
 public:
  FuzzedServer()
      : path_((std::filesystem::temp_directory_path() / ("kipp-http-fuzz-" + std::to_string(::getpid()))).string()) {
    kipp::http::Options options{.host = "", .unix_socket = path_, .num_threads = 1};
    options.max_header_bytes = kMaxHeaders;
    options.max_body_bytes = kMaxBody;
    options.cors_origins = {"o"};
    auto server = kipp::http::Server::start(options, [](const std::shared_ptr<kipp::http::Exchange>& exchange) {
      if (exchange->request().path != "/stream") {
        return exchange->respond({.body = exchange->request().body});
      }
      exchange->begin_stream({});
      exchange->write(exchange->request().body);
      exchange->write(exchange->request().query);
      exchange->end_stream();
    });
    require(server.has_value());
    server_ = *std::move(server);
  }

  std::string ask(std::string_view bytes) const {
    const kipp::http::Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.data(), path_.size());
    require(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) {
        break;  // it was refused before its end
      }
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    ::shutdown(socket.get(), SHUT_WR);
    std::string answer;
    for (char chunk[4096];;) {
      pollfd entry{.fd = socket.get(), .events = POLLIN, .revents = 0};
      int ready = ::poll(&entry, 1, 8000);
      while (ready < 0 && errno == EINTR) {  // libFuzzer's clock is a signal
        ready = ::poll(&entry, 1, 8000);
      }
      require(ready == 1);  // never left waiting
      const ssize_t count = ::recv(socket.get(), chunk, sizeof chunk, 0);
      if (count <= 0) {
        return answer;
      }
      answer.append(chunk, static_cast<size_t>(count));
    }
  }

 private:
  std::string path_;
  std::unique_ptr<kipp::http::Server> server_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Verdict whole = read(bytes, std::max<size_t>(size, 1));
  for (const size_t step : {size_t{1}, size_t{61}}) {
    const Verdict pieces = read(bytes, step);
    require(pieces.state == whole.state && pieces.status == whole.status && pieces.body == whole.body);
    require(whole.state != State::kDone || pieces.consumed == whole.consumed);
  }

  static const FuzzedServer server;
  std::string_view answer;
  const std::string text = server.ask(bytes);
  answer = text;
  constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  if (answer.starts_with(kContinue)) {
    answer.remove_prefix(kContinue.size());
  }
  const bool is_nothing = answer.empty();
  require(is_nothing || answer.starts_with("HTTP/1.1 "));
  const std::string_view status = is_nothing ? "" : answer.substr(9, 3);
  switch (whole.state) {
    case State::kDone: require(status == "200" || status == "204"); break;
    case State::kRefused: require(status == std::to_string(whole.status)); break;
    case State::kBody: require(status == "400"); break;
    case State::kHead: require(status == "400" || (is_nothing && bytes.find_first_not_of("\r\n") == bytes.npos)); break;
  }
  return 0;
}
