// Lines arrive whole and in order; nobody waits for a reader, and what is lost is counted.
#include "server/log/logger.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <thread>

namespace kipp::log {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;
using ::testing::HasSubstr;

struct Pipe {
  Pipe() { EXPECT_EQ(::pipe(ends.data()), 0); }
  ~Pipe() {
    ::close(ends[0]);
    close_writer();
  }
  void close_writer() {
    if (ends[1] >= 0) ::close(std::exchange(ends[1], -1));
  }
  std::string read_all() {
    std::string text;
    std::array<char, 65536> buffer;
    for (ssize_t count = 0; (count = ::read(ends[0], buffer.data(), buffer.size())) > 0;) {
      text.append(buffer.data(), static_cast<size_t>(count));
    }
    return text;
  }
  std::array<int, 2> ends = {-1, -1};
};

std::vector<Json> lines_of(const std::string& text) {
  std::vector<Json> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    const auto parsed = parse_json(text.substr(begin, end - begin));
    EXPECT_TRUE(parsed.has_value()) << text.substr(begin, end - begin);
    if (end == std::string::npos || !parsed) break;
    lines.push_back(*parsed);
    begin = end + 1;
  }
  return lines;
}

TEST(Logger, ManyThreadsWriteWholeLinesInTheirOrder) {
  constexpr int kThreads = 4;
  constexpr int64_t kEach = 500;
  Pipe pipe;
  std::string text;
  std::thread reader([&] { text = pipe.read_all(); });
  {
    Logger logger({.format = Format::kJson, .descriptor = pipe.ends[1]});
    std::vector<std::thread> writers;
    for (int t = 0; t < kThreads; ++t) {
      writers.emplace_back([&logger, t] {
        for (int64_t n = 0; n < kEach; ++n) {
          logger.write(Level::kInfo, "e", {{"t", Json::number(int64_t{t})}, {"n", Json::number(n)}});
        }
      });
    }
    for (std::thread& writer : writers) writer.join();
  }
  pipe.close_writer();
  reader.join();
  std::array<int64_t, kThreads> next = {};
  const std::vector<Json> lines = lines_of(text);
  ASSERT_EQ(lines.size(), size_t{kThreads * kEach});
  for (const Json& line : lines) {
    const auto thread = static_cast<size_t>(*line.find("t")->as_int64());
    EXPECT_EQ(*line.find("n")->as_int64(), next[thread]++);
  }
}

TEST(Logger, LeavesOutWhatIsLess) {
  Pipe pipe;
  {
    Logger logger({.format = Format::kJson, .level = Level::kWarning, .descriptor = pipe.ends[1]});
    EXPECT_FALSE(logger.wants(Level::kInfo));
    logger.write(Level::kDebug, "no");
    logger.write(Level::kInfo, "no");
    logger.write(Level::kWarning, "yes");
    logger.write(Level::kError, "yes");
  }
  pipe.close_writer();
  EXPECT_EQ(lines_of(pipe.read_all()).size(), 2U);
}

TEST(Logger, AReaderThatStandsStillHoldsNobodyUp) {
  constexpr int64_t kLines = 5000;
  Pipe pipe;
  std::string text;
  std::thread reader;
  {
    Logger logger({.format = Format::kJson, .descriptor = pipe.ends[1], .max_queued_bytes = 100'000});
    const auto start = steady_clock::now();
    for (int64_t n = 0; n < kLines; ++n) logger.write(Level::kInfo, "e", {{"n", Json::number(n)}});
    EXPECT_LT(steady_clock::now() - start, seconds(10));
    reader = std::thread([&] { text = pipe.read_all(); });
  }
  pipe.close_writer();
  reader.join();
  const std::vector<Json> lines = lines_of(text);
  int64_t num_dropped = 0;
  int64_t num_lines = 0;
  for (const Json& line : lines) {
    const Json* count = line.find("count");
    num_dropped += count != nullptr ? *count->as_int64() : 0;
    num_lines += count != nullptr ? 0 : 1;
  }
  EXPECT_GT(num_dropped, 0);
  EXPECT_EQ(num_lines + num_dropped, kLines);
  EXPECT_EQ(*lines.back().find("n")->as_int64(), kLines - 1) << "the last words are kept";
}

TEST(Logger, EndsThoughNobodyReads) {
  static const Pipe* const kPipe = new Pipe;  // for ever: the thread that is left behind is writing to it
  const auto start = steady_clock::now();
  {
    Logger logger({.format = Format::kJson, .descriptor = kPipe->ends[1], .max_queued_bytes = 1'000'000});
    for (int64_t n = 0; n < 3000; ++n) logger.write(Level::kInfo, "e", {{"n", Json::number(n)}});
  }
  EXPECT_LT(steady_clock::now() - start, seconds(10));
}

TEST(Logger, ABrokenDescriptorIsNoFailure) {
  Logger logger({.descriptor = -1});
  logger.write(Level::kInfo, "e");
}

}  // namespace
}  // namespace kipp::log
