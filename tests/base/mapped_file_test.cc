// Mapped files: contents, moves, and everything that is not a readable regular file.
#include "base/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace kipp {
namespace {

class MappedFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "kipp-mapped-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path write(std::string_view content) {
    const auto path = folder_ / "file";
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }

  static std::string text(const MappedFile& file) {
    return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
  }

  std::filesystem::path folder_;
};

TEST_F(MappedFileTest, CopiesTheBytes) {
  std::string content(40'000'000, 'x');
  content.back() = 'y';
  std::vector<uint64_t> seen;
  const auto file = MappedFile::copy(write(content), [&](uint64_t copied, uint64_t size) {
    EXPECT_EQ(size, content.size());
    seen.push_back(copied);
  });
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(text(*file), content);
  EXPECT_GE(seen.size(), 3U);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(seen.back(), content.size());
}

TEST_F(MappedFileTest, ACopyRefusesWhatAMapRefuses) {
  const auto missing = MappedFile::copy(folder_ / "none", {});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  const auto folder = MappedFile::copy(folder_, {});
  ASSERT_FALSE(folder);
  EXPECT_EQ(folder.error().code, ErrorCode::kIo);
}

TEST_F(MappedFileTest, ShowsTheBytes) {
  const auto file = MappedFile::open(write("some bytes"));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(text(*file), "some bytes");
}

TEST_F(MappedFileTest, MovesKeepTheMapping) {
  auto file = MappedFile::open(write("some bytes"));
  ASSERT_TRUE(file);
  const std::byte* data = file->bytes().data();
  MappedFile moved = std::move(*file);
  EXPECT_EQ(moved.bytes().data(), data);
  EXPECT_TRUE(file->bytes().empty());
  MappedFile assigned;
  assigned = std::move(moved);
  EXPECT_EQ(assigned.bytes().data(), data);
  EXPECT_EQ(text(assigned), "some bytes");
}

TEST_F(MappedFileTest, OutlivesTheName) {
  const auto path = write("some bytes");
  const auto file = MappedFile::open(path);
  ASSERT_TRUE(file);
  std::filesystem::remove(path);
  EXPECT_EQ(text(*file), "some bytes");
}

TEST_F(MappedFileTest, RefusesWhatIsNoFile) {
  const auto missing = MappedFile::open(folder_ / "missing");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(missing.error().message, testing::HasSubstr("missing"));

  const auto folder = MappedFile::open(folder_);
  ASSERT_FALSE(folder);
  EXPECT_EQ(folder.error().code, ErrorCode::kIo);
  EXPECT_THAT(folder.error().message, testing::HasSubstr("regular file"));

  const auto empty = MappedFile::open(write(""));
  ASSERT_FALSE(empty);
  EXPECT_EQ(empty.error().code, ErrorCode::kIo);
  EXPECT_THAT(empty.error().message, testing::HasSubstr("empty"));
}

// Opening a pipe that nobody writes to must not wait for a writer.
TEST_F(MappedFileTest, RefusesAPipeWithoutWaiting) {
  const auto path = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const auto pipe = MappedFile::open(path);
  ASSERT_FALSE(pipe);
  EXPECT_EQ(pipe.error().code, ErrorCode::kIo);
}

#ifndef KIPP_SANITIZED  // the sanitizers' own allocations would fail
TEST_F(MappedFileTest, SaysThatTheAddressSpaceIsFull) {
  const auto path = folder_ / "sparse";
  std::ofstream(path).close();
  constexpr uint64_t kBytes = uint64_t{8} << 30;
  std::filesystem::resize_file(path, kBytes);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &before), 0);
  const rlimit small{.rlim_cur = kBytes, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &small), 0);
  const auto file = MappedFile::open(path);
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &before), 0);
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, ErrorCode::kIo);
  EXPECT_THAT(file.error().message, testing::HasSubstr("cannot map 8589934592 bytes: Cannot allocate memory"));
}
#endif

}  // namespace
}  // namespace kipp
