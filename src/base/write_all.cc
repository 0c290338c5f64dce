// write() may take a part, be interrupted, or find a pipe full that whoever shares it made non-blocking.
#include "base/write_all.h"

#include <unistd.h>

#include <cerrno>

#include "base/wait_until_ready.h"

namespace kipp {

int write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor, bytes.data(), bytes.size());
    if (count >= 0) {
      bytes.remove_prefix(static_cast<size_t>(count));
    } else if (errno == EAGAIN) {
      wait_until_ready(descriptor, POLLOUT);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

}  // namespace kipp
