// A file is there whole or not at all, and a folder that cannot take it is known beforehand.
#include "gates/output_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

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

}  // namespace
}  // namespace kipp::gates
