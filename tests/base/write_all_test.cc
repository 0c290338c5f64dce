// All bytes arrive, also through a pipe that is full and does not block, and a failure is its errno.
#include "base/write_all.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <string>
#include <thread>

namespace kipp {
namespace {

TEST(WriteAll, WaitsForAPipeThatDoesNotBlock) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  ASSERT_EQ(::fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
  std::string read;
  std::thread reader([&] {
    std::array<char, 4096> chunk;
    for (ssize_t count = 1; count > 0;) {
      count = ::read(ends[0], chunk.data(), chunk.size());
      read.append(chunk.data(), count > 0 ? static_cast<size_t>(count) : 0);
    }
  });
  const std::string bytes(1 << 20, 'x');  // more than a pipe holds
  EXPECT_EQ(write_all(ends[1], bytes), 0);
  ::close(ends[1]);
  reader.join();
  ::close(ends[0]);
  EXPECT_EQ(read, bytes);
}

TEST(WriteAll, SaysWhyItFailed) {
  EXPECT_EQ(write_all(-1, "x"), EBADF);
  EXPECT_EQ(write_all(-1, ""), 0);
  const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  EXPECT_EQ(write_all(full, "x"), ENOSPC);
  ::close(full);
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  ::close(ends[0]);
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  EXPECT_EQ(write_all(ends[1], "x"), EPIPE);
  std::signal(SIGPIPE, before);
  ::close(ends[1]);
}

}  // namespace
}  // namespace kipp
