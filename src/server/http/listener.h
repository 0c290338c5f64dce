// Listening sockets, TCP and Unix, from the addresses in options to accepted connections.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>

#include "kipp/error.h"

namespace kipp::http {

// A descriptor that is closed at the end.
class Descriptor {
 public:
  explicit Descriptor(int value = -1) : value_(value) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : value_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;

  int get() const { return value_; }
  int release() { return std::exchange(value_, -1); }

 private:
  int value_;
};

class Listener {
 public:
  // "127.0.0.1", "::1", "[::1]", "localhost", …; the first address of a name that can be bound. Port 0: any free one.
  static Result<Listener> tcp(const std::string& host, uint16_t port);
  // Only its owner may connect (mode 0600). A socket that nobody listens on is replaced; anything else is an error.
  static Result<Listener> unix_socket(const std::string& path);
  ~Listener();
  Listener(Listener&& other) noexcept;
  Listener& operator=(Listener&&) = delete;

  int descriptor() const { return socket_.get(); }
  bool is_tcp() const { return path_.empty(); }
  uint16_t port() const { return port_; }

  struct Accepted {
    Descriptor socket{};  // non-blocking
    std::string peer = {};
    int error = 0;  // errno, where there is no socket: EAGAIN if nobody waits
  };
  Accepted accept() const;
  // Nobody can connect any more, and the file of a Unix socket is removed. From any thread, any number of times.
  void stop() const;

 private:
  Listener() = default;

  Descriptor socket_;
  uint16_t port_ = 0;
  std::string path_;
  dev_t device_ = 0;  // the file at path_ as it was made: another that took its place is left alone
  ino_t inode_ = 0;
};

}  // namespace kipp::http
