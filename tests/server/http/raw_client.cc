// Sockets, and just enough HTTP to take answers apart (raw_client.h).
#include "server/http/raw_client.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <thread>

namespace kipp::http::testing {
namespace {

using Clock = std::chrono::steady_clock;

template <typename Address>
Descriptor connect_to(int family, const Address& address) {
  Descriptor socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return Descriptor();
  }
  return socket;
}

// Chunks joined, and the bytes that they take; nullopt if the last chunk is missing or one is malformed.
std::optional<size_t> join_chunks(std::string_view bytes, std::string& body) {
  size_t at = 0;
  for (;;) {
    const size_t line_end = bytes.find("\r\n", at);
    if (line_end == std::string_view::npos) {
      return std::nullopt;
    }
    const size_t size = std::stoul(std::string(bytes.substr(at, line_end - at)), nullptr, 16);
    at = line_end + 2;
    if (bytes.size() < at + size + 2) {
      body += bytes.substr(at, size);
      return std::nullopt;
    }
    body += bytes.substr(at, size);
    EXPECT_EQ(bytes.substr(at + size, 2), "\r\n");
    at += size + 2;
    if (size == 0) {
      return at;
    }
  }
}

void parse_head(std::string_view head, Answer& answer) {
  EXPECT_TRUE(head.starts_with("HTTP/1.1 ")) << head.substr(0, 80);
  answer.status = std::stoi(std::string(head.substr(9, 3)));
  for (size_t at = head.find("\r\n") + 2; at < head.size();) {
    const size_t end = head.find("\r\n", at);
    const std::string_view line = head.substr(at, end - at);
    const size_t colon = line.find(": ");
    std::string name(line.substr(0, colon));
    for (char& c : name) {
      c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    answer.headers[name] = line.substr(std::min(colon + 2, line.size()));
    at = end == std::string_view::npos ? head.size() : end + 2;
  }
}

}  // namespace

std::optional<Answer> take_answer(std::string& bytes, bool has_body, bool is_at_end) {
  const size_t head_end = bytes.find("\r\n\r\n");
  if (head_end == std::string::npos) {
    return std::nullopt;
  }
  Answer answer{.is_whole = true};
  parse_head(std::string_view(bytes).substr(0, head_end), answer);
  const std::string_view rest = std::string_view(bytes).substr(head_end + 4);
  size_t used = 0;
  if (has_body && answer.headers.contains("content-length")) {
    const size_t length = std::stoul(answer.headers["content-length"]);
    answer.is_whole = rest.size() >= length;
    if (!answer.is_whole && !is_at_end) {
      return std::nullopt;  // before anything is copied
    }
    used = std::min(length, rest.size());
    answer.body = rest.substr(0, used);
  } else if (has_body && answer.headers.contains("transfer-encoding")) {
    const std::optional<size_t> end = join_chunks(rest, answer.body);
    answer.is_whole = end.has_value();
    used = end.value_or(rest.size());
  } else if (has_body && answer.status >= 200 && answer.status != 204 && answer.status != 304) {
    answer.is_whole = is_at_end;
    answer.body = rest;
    used = rest.size();
  }
  if (!answer.is_whole && !is_at_end) {
    return std::nullopt;
  }
  bytes.erase(0, head_end + 4 + used);
  return answer;
}

RawClient RawClient::tcp(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return RawClient(connect_to(AF_INET, address));
}

RawClient RawClient::tcp6(uint16_t port) {
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  address.sin6_addr = in6addr_loopback;
  return RawClient(connect_to(AF_INET6, address));
}

RawClient RawClient::unix_socket(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  return RawClient(connect_to(AF_UNIX, address));
}

bool RawClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0) {
      return false;
    }
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

void RawClient::close_sending_side() {
  ::shutdown(socket_.get(), SHUT_WR);
}

// False: the end, an error, or nothing in time (errno is ETIMEDOUT then).
bool RawClient::read_more(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<Milliseconds>(deadline - Clock::now());
  pollfd entry{.fd = socket_.get(), .events = POLLIN, .revents = 0};
  if (left <= 0ms || ::poll(&entry, 1, static_cast<int>(left.count())) <= 0) {
    errno = ETIMEDOUT;
    return false;
  }
  std::array<char, 65536> chunk{};
  const ssize_t count = ::recv(socket_.get(), chunk.data(), chunk.size(), 0);
  if (count <= 0) {
    errno = count == 0 ? 0 : errno;
    return false;
  }
  buffer_.append(chunk.data(), static_cast<size_t>(count));
  return true;
}

std::string RawClient::read_for(Milliseconds limit) {
  while (read_more(Clock::now() + limit)) {
  }
  return std::exchange(buffer_, {});
}

std::optional<std::string> RawClient::read_to_end(Milliseconds limit) {
  const Clock::time_point deadline = Clock::now() + limit;
  while (read_more(deadline)) {
  }
  return errno == ETIMEDOUT ? std::nullopt : std::optional(std::exchange(buffer_, {}));
}

Answer RawClient::read_answer(bool has_body, Milliseconds limit) {
  const Clock::time_point deadline = Clock::now() + limit;
  for (bool is_at_end = false;;) {
    if (std::optional<Answer> answer = take_answer(buffer_, has_body, is_at_end)) {
      return *answer;
    }
    if (is_at_end) {
      return {};
    }
    is_at_end = !read_more(deadline);
  }
}

bool RawClient::is_at_end(Milliseconds limit) {
  return buffer_.empty() && !read_more(Clock::now() + limit) && errno != ETIMEDOUT;
}

TestServer::TestServer(Options options) {
  auto server = Server::start(std::move(options), [this](std::shared_ptr<Exchange> e) { handle(std::move(e)); });
  if (!server) {
    throw std::runtime_error(server.error().message);
  }
  server_ = *std::move(server);
}

void TestServer::handle(std::shared_ptr<Exchange> exchange) {
  const Request& request = exchange->request();
  if (request.path == "/echo" || request.path == "/health") {
    exchange->respond({.headers = {{"X-Key", fmt::format("{}", request.key_index)}},
                       .body = fmt::format("{} {}?{}\n{}", request.method, request.path, request.query, request.body),
                       .content_type = "text/plain"});
  } else if (request.path == "/stream") {
    exchange->begin_stream({.content_type = "text/event-stream"});
    for (const char* piece : {"one ", "two ", "three"}) {
      exchange->write(piece);
    }
    exchange->end_stream();
  } else if (request.path == "/throw") {
    throw std::runtime_error("a handler's fault");
  } else if (request.path != "/quiet") {
    const std::lock_guard lock(mutex_);
    held_.push_back(std::move(exchange));
    arrived_.notify_all();
  }
}

Answer TestServer::ask(std::string_view bytes) const {
  RawClient client = connect();
  client.send(bytes);
  return client.read_answer(!bytes.starts_with("HEAD"));
}

std::shared_ptr<Exchange> TestServer::held() {
  std::unique_lock lock(mutex_);
  if (!arrived_.wait_for(lock, 5s, [this] { return !held_.empty(); })) {
    throw std::runtime_error("no exchange was held");
  }
  std::shared_ptr<Exchange> first = std::move(held_.front());
  held_.erase(held_.begin());
  return first;
}

uint64_t TestServer::refusals(int status) const {
  const std::map<int, uint64_t> all = server_->statistics().refusals;
  const auto found = all.find(status);
  return found != all.end() ? found->second : 0;
}

bool eventually(const std::function<bool()>& condition, Milliseconds limit) {
  for (const auto deadline = Clock::now() + limit; Clock::now() < deadline;) {
    if (condition()) {
      return true;
    }
    std::this_thread::sleep_for(2ms);
  }
  return condition();
}

std::string get(std::string_view path, std::string_view more_headers) {
  return fmt::format("GET {} HTTP/1.1\r\nHost: x\r\n{}\r\n", path, more_headers);
}

std::string post(std::string_view path, std::string_view body) {
  return fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}", path, body.size(), body);
}

}  // namespace kipp::http::testing
