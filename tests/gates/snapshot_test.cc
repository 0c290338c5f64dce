// A snapshot compares equal with itself and names the line that changed.
#include "gates/snapshot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "gates/reference_twin.h"
#include "gates/vector_writer.h"

namespace kipp::gates {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

TEST(Snapshot, ComparesEqualAndNoticesOneDigit) {
  const TemporaryFolder folder;
  const GateInput input = twin_input();
  const auto path = folder.path() / "snapshot.txt";
  ASSERT_TRUE(run_snapshot(input, path, SnapshotMode::kWrite)->passed());
  EXPECT_THAT(run_snapshot(input, path, SnapshotMode::kCompare)->failures, IsEmpty());
  std::string text = read(path);
  EXPECT_THAT(text, AllOf(HasSubstr("prompt hi (3 tokens)\n1 "), HasSubstr("\n10 "), HasSubstr("\ngreedy ")));
  const size_t line_end = text.find('\n', text.find("\n3 ") + 1);
  text[line_end - 1] = text[line_end - 1] == '1' ? '2' : '1';
  folder.write("snapshot.txt", text);
  EXPECT_THAT(run_snapshot(input, path, SnapshotMode::kCompare)->failures,
              ElementsAre(AllOf(HasSubstr("line 5"), HasSubstr("prompt hi"))));
}

TEST(Snapshot, AMissingFileIsAnError) {
  const TemporaryFolder folder;
  const auto record = run_snapshot(twin_input(), folder.path() / "none.txt", SnapshotMode::kCompare);
  ASSERT_FALSE(record.has_value());
  EXPECT_EQ(record.error().code, ErrorCode::kNotFound);
}

TEST(FirstDifference, NamesLineAndPrompt) {
  EXPECT_EQ(first_difference("a\nb\n", "a\nb\n"), "");
  EXPECT_THAT(first_difference("prompt x\n1 2\n", "prompt x\n1 3\n"),
              AllOf(HasSubstr("line 2"), HasSubstr("prompt x"), HasSubstr("'1 3'")));
  EXPECT_THAT(first_difference("a\n", "a\nb\n"), HasSubstr("line 2"));
  EXPECT_FALSE(first_difference("a", "a\n").empty());
}

}  // namespace
}  // namespace kipp::gates
