// Standard streams may be non-blocking: whoever shares them decides that, not this process.
#pragma once

#include <poll.h>

namespace kipp {

// Returns when the descriptor can be read or written (events: POLLIN or POLLOUT), at its end or error, or on a signal.
inline void wait_until_ready(int descriptor, short events) {
  pollfd entry{.fd = descriptor, .events = events, .revents = 0};
  static_cast<void>(::poll(&entry, 1, -1));
}

}  // namespace kipp
