// Lines from a pipe: ends, limits, and pieces that arrive at any boundary.
#include "cli/input.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace kipp::cli {
namespace {

// (text, too_long) of every line of `bytes`, written to a pipe `piece` bytes at a time.
std::vector<std::pair<std::string, bool>> read_lines(std::string_view bytes, size_t piece, size_t limit) {
  std::array<int, 2> ends{};
  EXPECT_EQ(::pipe(ends.data()), 0);
  std::thread writer([&] {
    for (size_t i = 0; i < bytes.size(); i += piece) {
      const std::string_view part = bytes.substr(i, piece);
      EXPECT_EQ(::write(ends[1], part.data(), part.size()), static_cast<ssize_t>(part.size()));
    }
    ::close(ends[1]);
  });
  std::vector<std::pair<std::string, bool>> lines;
  LineReader reader(ends[0], limit);
  for (;;) {
    auto line = reader.next();
    EXPECT_TRUE(line);
    if (!line || !*line) {
      break;
    }
    lines.emplace_back((*line)->text, (*line)->too_long);
    EXPECT_LE((*line)->text.size(), (*line)->num_bytes);
    EXPECT_EQ((*line)->num_bytes > limit, (*line)->too_long);
  }
  writer.join();
  ::close(ends[0]);
  return lines;
}

using Lines = std::vector<std::pair<std::string, bool>>;

TEST(LineReader, SplitsAtEveryBoundary) {
  const std::string_view bytes("one\n\ntwo\0x\r\nlast", 16);
  const Lines expected = {{"one", false}, {"", false}, {std::string("two\0x\r", 6), false}, {"last", false}};
  for (size_t piece = 1; piece <= bytes.size(); ++piece) {
    EXPECT_EQ(read_lines(bytes, piece, 100), expected) << piece;
  }
}

TEST(LineReader, EndsWithOrWithoutANewline) {
  EXPECT_EQ(read_lines("", 1, 10), Lines{});
  EXPECT_EQ(read_lines("\n", 1, 10), (Lines{{"", false}}));
  EXPECT_EQ(read_lines("a\n", 1, 10), (Lines{{"a", false}}));
  EXPECT_EQ(read_lines("a", 1, 10), (Lines{{"a", false}}));
}

TEST(LineReader, SkipsALineOverTheLimitAndGoesOn) {
  for (const size_t piece : {1U, 2U, 3U, 5U, 100U}) {
    EXPECT_EQ(read_lines("12345\n123456\nok\n", piece, 5), (Lines{{"12345", false}, {"", true}, {"ok", false}}))
        << piece;
    EXPECT_EQ(read_lines("ok\n123456", piece, 5), (Lines{{"ok", false}, {"", true}})) << piece;
  }
  // Longer than the reader's own buffer, so that it is dropped in several parts.
  const std::string huge(300'000, 'x');
  EXPECT_EQ(read_lines(huge + "\nok\n", 65536, 1000), (Lines{{"", true}, {"ok", false}}));
  EXPECT_EQ(read_lines(huge + "\nok\n", 65536, 300'000), (Lines{{huge, false}, {"ok", false}}));
}

TEST(LineReader, CountsWhatItSkips) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const std::string bytes = "ab\n" + std::string(1000, 'x') + "\n" + std::string(500, 'y');
  ASSERT_EQ(::write(ends[1], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  ::close(ends[1]);
  LineReader reader(ends[0], 10);
  for (const size_t num_bytes : {2U, 1000U, 500U}) {
    EXPECT_EQ(reader.next().value().value().num_bytes, num_bytes);
  }
  ::close(ends[0]);
}

TEST(ReadAll, SaysTheLimitAndHowMuchThereWas) {
  const auto read = [](const std::string& bytes, size_t max_bytes, bool is_file) {
    std::array<int, 2> ends{};
    std::FILE* file = std::tmpfile();
    if (is_file) {
      EXPECT_EQ(std::fwrite(bytes.data(), 1, bytes.size(), file), bytes.size());
      std::rewind(file);
    } else {
      EXPECT_EQ(::pipe(ends.data()), 0);
      EXPECT_EQ(::write(ends[1], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
      ::close(ends[1]);
    }
    const Result<std::string> text = read_all(is_file ? ::fileno(file) : ends[0], max_bytes);
    std::fclose(file);
    if (!is_file) {
      ::close(ends[0]);
    }
    return text;
  };
  for (const bool is_file : {false, true}) {
    EXPECT_EQ(read("12345678", 8, is_file).value(), "12345678");
    const Error error = read("123456789", 8, is_file).error();
    EXPECT_EQ(error.code, ErrorCode::kCapacity);
    EXPECT_EQ(error.message,
              is_file ? "input: expected 8 bytes at most, found 9" : "input: expected 8 bytes at most, found more");
  }
}

}  // namespace
}  // namespace kipp::cli
