// Sockets by the system's own calls (listener.h).
#include "server/http/listener.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>

namespace kipp::http {
namespace {

std::string reason(int error) {
  return std::generic_category().message(error);
}

int last_error() {
  return errno;
}

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Result<Addresses> resolve(const std::string& host, uint16_t port) {
  const bool in_brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const std::string name = in_brackets ? host.substr(1, host.size() - 2) : host;
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(name.c_str(), fmt::format("{}", port).c_str(), &hints, &found); error != 0) {
    return make_error(ErrorCode::kInvalidArgument, fmt::format("host '{}': {}", host, ::gai_strerror(error)));
  }
  return Addresses(found, &::freeaddrinfo);
}

// errno, or 0.
int listen_at(const addrinfo& address, Descriptor& out) {
  Descriptor socket(::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  const int off = 0;
  if (socket.get() < 0 || ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      (address.ai_family == AF_INET6 && ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) != 0) ||
      ::bind(socket.get(), address.ai_addr, address.ai_addrlen) != 0 || ::listen(socket.get(), SOMAXCONN) != 0) {
    return last_error();
  }
  out = std::move(socket);
  return 0;
}

uint16_t port_of(const sockaddr_storage& address) {
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

std::string name_of(const sockaddr_storage& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.ss_family == AF_INET6) {
    ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, text.data(), text.size());
    return fmt::format("[{}]:{}", text.data(), port_of(address));
  }
  if (address.ss_family == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(address).sin_addr, text.data(), text.size());
    return fmt::format("{}:{}", text.data(), port_of(address));
  }
  return "unix";
}

// Removes what an earlier process left at that path.
Result<void> remove_stale_socket(const std::string& path, const sockaddr_un& address) {
  struct stat status{};
  if (::lstat(path.c_str(), &status) != 0) {
    return {};  // nothing is there; if it is something else, bind() will say so
  }
  if (!S_ISSOCK(status.st_mode)) {
    return make_error(ErrorCode::kInvalidArgument, fmt::format("{}: exists and is not a socket", path));
  }
  const Descriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int error =
      ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : last_error();
  if (error != ECONNREFUSED) {  // also where its queue is full (EAGAIN), or is another user's (EACCES)
    return make_error(ErrorCode::kInvalidArgument, fmt::format("{}: another process listens there", path));
  }
  ::unlink(path.c_str());
  return {};
}

}  // namespace

Descriptor::~Descriptor() {
  if (value_ >= 0) {
    ::close(value_);
  }
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(value_, other.value_);
  return *this;
}

Result<Listener> Listener::tcp(const std::string& host, uint16_t port) {
  KIPP_ASSIGN(const Addresses addresses, resolve(host, port));
  Listener listener;
  int error = 0;
  for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next) {
    error = listen_at(*address, listener.socket_);
    if (error == 0) {
      sockaddr_storage bound{};
      socklen_t bytes = sizeof bound;
      ::getsockname(listener.socket_.get(), reinterpret_cast<sockaddr*>(&bound), &bytes);
      listener.port_ = port_of(bound);
      return listener;
    }
  }
  return make_error(ErrorCode::kIo, fmt::format("cannot listen on {}, port {}: {}", host, port, reason(error)));
}

Result<Listener> Listener::unix_socket(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("{}: the path of a socket has at most {} bytes", path, sizeof address.sun_path - 1));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  KIPP_TRY(remove_stale_socket(path, address));
  Listener listener;
  listener.socket_ = Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int socket = listener.socket_.get();
  struct stat status{};
  // Until listen() nobody can connect, so the file is never open to others, whatever the umask is.
  if (socket < 0 || ::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::chmod(path.c_str(), S_IRUSR | S_IWUSR) != 0 || ::lstat(path.c_str(), &status) != 0 ||
      ::listen(socket, SOMAXCONN) != 0) {
    return make_error(ErrorCode::kIo, fmt::format("cannot listen on {}: {}", path, reason(last_error())));
  }
  listener.path_ = path;
  listener.device_ = status.st_dev;
  listener.inode_ = status.st_ino;
  return listener;
}

Listener::Listener(Listener&& other) noexcept
    : socket_(std::move(other.socket_)),
      port_(other.port_),
      path_(std::exchange(other.path_, {})),
      device_(other.device_),
      inode_(other.inode_) {}

Listener::~Listener() {
  if (socket_.get() >= 0) {
    stop();
  }
}

Listener::Accepted Listener::accept() const {
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  Descriptor socket(
      ::accept4(socket_.get(), reinterpret_cast<sockaddr*>(&address), &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket.get() < 0) {
    return {.socket = Descriptor(), .peer = "", .error = last_error()};
  }
  if (is_tcp()) {
    const int on = 1;
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ::setsockopt(socket.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  }
  return {.socket = std::move(socket), .peer = is_tcp() ? name_of(address) : "unix", .error = 0};
}

void Listener::stop() const {
  ::shutdown(socket_.get(), SHUT_RDWR);  // on a listening socket: the end of listening, for every thread
  struct stat status{};
  if (!path_.empty() && ::lstat(path_.c_str(), &status) == 0 && status.st_dev == device_ && status.st_ino == inode_) {
    ::unlink(path_.c_str());
  }
}

}  // namespace kipp::http
