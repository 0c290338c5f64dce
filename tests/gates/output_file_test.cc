// A file is there whole or not at all, and a folder that cannot take it is known beforehand.
#include "gates/output_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "gates/vector_writer.h"

namespace kipp::gates {
namespace {

using ::testing::HasSubstr;

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

ptrdiff_t num_files(const std::filesystem::path& folder) {
  return std::distance(std::filesystem::directory_iterator(folder), {});
}

TEST(OutputFile, ReplacesWhatWasThere) {
  const TemporaryFolder folder;
  const auto path = folder.write("record.json", "an older and longer one");
  ASSERT_TRUE(write_whole(path, "new").has_value());
  EXPECT_EQ(read(path), "new");
  EXPECT_EQ(num_files(folder.path()), 1);
}

TEST(OutputFile, CheckingLeavesNothing) {
  const TemporaryFolder folder;
  EXPECT_TRUE(check_writable(folder.path() / "record.json").has_value());
  EXPECT_EQ(num_files(folder.path()), 0);
  const auto path = folder.write("old.json", "old");
  EXPECT_TRUE(check_writable(path).has_value());
  EXPECT_EQ(read(path), "old");
  EXPECT_EQ(num_files(folder.path()), 1);
}

TEST(OutputFile, RefusesWhatCannotBeWritten) {
  const TemporaryFolder folder;
  for (const auto& path : {folder.path() / "none" / "record.json", folder.path()}) {
    const auto checked = check_writable(path);
    ASSERT_FALSE(checked.has_value()) << path;
    EXPECT_EQ(checked.error().code, ErrorCode::kIo);
    EXPECT_THAT(checked.error().message, HasSubstr(path.string()));
  }
  EXPECT_FALSE(write_whole(folder.path() / "none" / "record.json", "x").has_value());
  EXPECT_EQ(num_files(folder.path()), 0);
}

TEST(OutputFile, ADeviceIsWrittenWhereItIs) {
  EXPECT_TRUE(check_writable("/dev/null").has_value());
  EXPECT_TRUE(write_whole("/dev/null", "x").has_value());
  const auto full = write_whole("/dev/full", "x");
  ASSERT_FALSE(full.has_value());
  EXPECT_THAT(full.error().message, HasSubstr("No space left"));
}

TEST(OutputFile, ALinkStaysOne) {
  const TemporaryFolder folder;
  const auto target = folder.write("target.json", "something longer");
  const auto link = folder.path() / "link.json";
  std::filesystem::create_symlink(target, link);
  ASSERT_TRUE(check_writable(link).has_value());
  ASSERT_TRUE(write_whole(link, "new").has_value());
  EXPECT_EQ(read(target), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(link));
}

mode_t mode_of(const std::filesystem::path& path) {
  struct stat status = {};
  EXPECT_EQ(::stat(path.c_str(), &status), 0) << path;
  return status.st_mode & 0777U;
}

// The umask of the process for as long as it lives.
class Umask {
 public:
  explicit Umask(mode_t mask) : before_(::umask(mask)) {}
  Umask(const Umask&) = delete;
  Umask& operator=(const Umask&) = delete;
  ~Umask() { ::umask(before_); }

 private:
  mode_t before_;
};

TEST(OutputFile, ANewFileObeysTheUmaskAndAnOldOneKeepsItsMode) {
  const TemporaryFolder folder;
  const Umask umask(0027);
  ASSERT_TRUE(write_whole(folder.path() / "new.json", "x").has_value());
  EXPECT_EQ(mode_of(folder.path() / "new.json"), 0640U);
  const auto secret = folder.write("secret.json", "old");
  for (const mode_t mode : {0600U, 0664U}) {
    ASSERT_EQ(::chmod(secret.c_str(), mode), 0);
    ASSERT_TRUE(write_whole(secret, "new").has_value());
    EXPECT_EQ(mode_of(secret), mode);
  }
  ASSERT_TRUE(write_whole(secret, "newer", 0600).has_value());
  EXPECT_EQ(mode_of(secret), 0600U);
}

TEST(OutputFile, ANewNameIsTakenOnce) {
  const TemporaryFolder folder;
  const Umask umask(0);
  const auto path = folder.path() / "chat.json";
  ASSERT_TRUE(write_new(path, "first", 0600).has_value());
  EXPECT_EQ(mode_of(path), 0600U);
  const auto again = write_new(path, "second", 0600);
  ASSERT_FALSE(again.has_value());
  EXPECT_EQ(again.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(again.error().message, HasSubstr("exists already"));
  EXPECT_EQ(read(path), "first");
  const auto dangling = folder.path() / "link.json";
  std::filesystem::create_symlink(folder.path() / "nothing.json", dangling);
  EXPECT_EQ(write_new(dangling, "x", 0600).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(write_new(folder.path() / "none" / "a.json", "x", 0600).error().code, ErrorCode::kIo);
  EXPECT_EQ(num_files(folder.path()), 2);
}

TEST(OutputFile, OfManyWritersOfANewNameOneGetsIt) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "chat.json";
  constexpr int kNumWriters = 8;
  std::vector<pid_t> writers;
  for (int i = 0; i < kNumWriters; ++i) {
    const pid_t writer = ::fork();
    if (writer == 0) {
      ::_exit(write_new(path, std::string(1 << 16, static_cast<char>('a' + i)), 0600).has_value() ? 0 : 1);
    }
    writers.push_back(writer);
  }
  int winners = 0;
  for (const pid_t writer : writers) {
    int status = 0;
    ASSERT_EQ(::waitpid(writer, &status, 0), writer);
    winners += WEXITSTATUS(status) == 0 ? 1 : 0;
  }
  EXPECT_EQ(winners, 1);
  const std::string content = read(path);
  EXPECT_EQ(content, std::string(1 << 16, content.at(0)));
  EXPECT_EQ(num_files(folder.path()), 1);
}

}  // namespace
}  // namespace kipp::gates
