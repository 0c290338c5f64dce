// Files that cannot be read, a chat that is saved, and the names that a bad line's error may have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "cli/chat_commands.h"
#include "cli/input.h"
#include "cli/jsonl.h"

namespace kipp::cli {
namespace {

using ::testing::HasSubstr;

class ReaderEdge : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "kipp-reader-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
};

TEST_F(ReaderEdge, AFileIsReadWhole) {
  const std::string bytes("a\0b\r\n", 5);
  std::ofstream(folder_ / "file", std::ios::binary) << bytes;
  EXPECT_EQ(read_file(folder_ / "file").value(), bytes);
}

TEST_F(ReaderEdge, ErrorsNameThePathAndTheReason) {
  const auto missing = read_file(folder_ / "missing");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(missing.error().message, (folder_ / "missing").string() + ": No such file or directory");
  // A folder opens; only reading it fails.
  const auto folder = read_file(folder_);
  ASSERT_FALSE(folder);
  EXPECT_EQ(folder.error().code, ErrorCode::kIo);
  EXPECT_EQ(folder.error().message, folder_.string() + ": cannot read the input: Is a directory");
}

TEST_F(ReaderEdge, LinesOfADescriptorThatCannotBeRead) {
  LineReader reader(-1);
  const auto line = reader.next();
  ASSERT_FALSE(line);
  EXPECT_EQ(line.error().code, ErrorCode::kIo);
  EXPECT_THAT(line.error().message, HasSubstr("Bad file descriptor"));
}

TEST_F(ReaderEdge, ASavedChatIsReadBackAndNeverReplaced) {
  ChatRequest request;
  request.messages = {{.role = Role::kUser, .content = "Hi\n\xc3\xa9"}};
  const std::string path = (folder_ / "chat.json").string();
  ASSERT_TRUE(save_conversation(request, path));
  const std::string saved = read_file(path).value();
  EXPECT_EQ(saved, "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\\n\xc3\xa9\"}]}\n");
  EXPECT_EQ(parse_chat_request(parse_json(saved).value()).value().messages[0].content, "Hi\n\xc3\xa9");

  request.messages[0].content = "other";
  const auto again = save_conversation(request, path);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(again.error().message, path + " exists already; name another file");
  EXPECT_EQ(read_file(path).value(), saved);

  const auto nowhere = save_conversation(request, (folder_ / "no" / "chat.json").string());
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().code, ErrorCode::kIo);
}

}  // namespace
}  // namespace kipp::cli
