// The file of typed lines: whole after every line, private, shared by chats, and never lost to a disk that is full.
#include "cli/line_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <histedit.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "cli/wide_text.h"

namespace kipp::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class LineHistoryTest : public ::testing::Test {
 protected:
  LineHistoryTest() {
    std::string name = (std::filesystem::temp_directory_path() / "kipp-history-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    path_ = folder_ / "lines";
  }
  ~LineHistoryTest() override { std::filesystem::remove_all(folder_); }

  std::string content() const {
    std::ifstream file(path_, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }

  std::filesystem::path folder_;
  std::filesystem::path path_;
};

// Oldest first.
std::vector<std::string> lines_of(const std::filesystem::path& path) {
  LineHistory history;
  EXPECT_TRUE(history.open(path).has_value());
  std::vector<std::string> lines;
  HistEventW event;
  for (int found = history_w(history.handle(), &event, H_LAST); found >= 0;
       found = history_w(history.handle(), &event, H_PREV)) {
    lines.push_back(to_utf8(event.str));
  }
  return lines;
}

TEST_F(LineHistoryTest, EveryLineIsInTheFileAtOnce) {
  LineHistory history;
  ASSERT_TRUE(history.open(path_).has_value());
  ASSERT_TRUE(history.add("one").has_value());
  EXPECT_THAT(lines_of(path_), ElementsAre("one"));
  ASSERT_TRUE(history.add("zwei Grüße\nand 世界").has_value());
  EXPECT_THAT(lines_of(path_), ElementsAre("one", "zwei Grüße\nand 世界"));
  struct stat status = {};
  ASSERT_EQ(::stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
}

TEST_F(LineHistoryTest, AnEmptyFileIsNoHistoryAndAForeignOneIsRefused) {
  std::ofstream(path_).close();
  EXPECT_THAT(lines_of(path_), IsEmpty());
  LineHistory history;
  EXPECT_EQ(history.open("/dev/null").error().code, ErrorCode::kIo);
  EXPECT_EQ(history.open("/dev/zero").error().code, ErrorCode::kIo);  // which has no end
  EXPECT_EQ(history.open(folder_ / "no folder" / "lines").error().code, ErrorCode::kIo);
  std::ofstream(path_) << "no history\n";
  EXPECT_EQ(history.open(path_).error().code, ErrorCode::kIo);
  EXPECT_EQ(history.open(folder_).error().code, ErrorCode::kIo);
  EXPECT_EQ(history.open(path_ / "below a file").error().code, ErrorCode::kIo);
}

TEST_F(LineHistoryTest, TwoChatsOnOneFileKeepTheLinesOfBoth) {
  LineHistory first;
  LineHistory second;
  ASSERT_TRUE(first.open(path_).has_value());
  ASSERT_TRUE(second.open(path_).has_value());
  ASSERT_TRUE(first.add("a").has_value());
  ASSERT_TRUE(second.add("b").has_value());
  ASSERT_TRUE(first.add("c").has_value());
  EXPECT_THAT(lines_of(path_), ElementsAre("a", "b", "c"));
}

TEST_F(LineHistoryTest, ALinkStaysOneAndItsFileIsReplacedWhole) {
  const auto target = folder_ / "target";
  std::ofstream(target).close();
  std::filesystem::create_symlink(target, path_);
  LineHistory history;
  ASSERT_TRUE(history.open(path_).has_value());
  ASSERT_TRUE(history.add("a").has_value());
  EXPECT_TRUE(std::filesystem::is_symlink(path_));
  EXPECT_THAT(lines_of(target), ElementsAre("a"));
}

// A limit on the size of files stands for a full disk; in a child, for it cannot be raised again.
TEST_F(LineHistoryTest, AFullDiskIsAnErrorAndLosesNothing) {
  LineHistory history;
  ASSERT_TRUE(history.open(path_).has_value());
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(history.add("line " + std::to_string(i)).has_value());
  }
  const std::string before = content();
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{.rlim_cur = 100, .rlim_max = RLIM_INFINITY};
    const rlimit none{.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
    const bool failed = ::setrlimit(RLIMIT_FSIZE, &limit) == 0 && !history.add("lost?").has_value();
    const bool unchanged = content() == before && ::setrlimit(RLIMIT_FSIZE, &none) == 0;
    const bool made_up = history.add("the next").has_value();
    ::_exit((failed ? 0 : 1) | (unchanged ? 0 : 2) | (made_up ? 0 : 4));
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  const std::vector<std::string> lines = lines_of(path_);
  ASSERT_EQ(lines.size(), 22U);
  EXPECT_EQ(lines[20], "lost?");
  EXPECT_EQ(lines[21], "the next");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

}  // namespace
}  // namespace kipp::cli
