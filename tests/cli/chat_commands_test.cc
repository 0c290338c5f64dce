// Which lines are commands, and what a saved chat says.
#include "cli/chat_commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kipp::cli {
namespace {

using ::testing::HasSubstr;

ChatCommand parsed(std::string_view line) {
  return parse_chat_command(line).value().value();
}

TEST(ChatCommands, AreReadWithTheirArguments) {
  EXPECT_EQ(parsed("/reset").kind, ChatCommandKind::kReset);
  EXPECT_EQ(parsed("/quit \t ").kind, ChatCommandKind::kQuit);
  EXPECT_EQ(parsed("/save  a file.json ").argument, "a file.json");
  EXPECT_EQ(parsed("/system\nBe brief.\nVery.\n").argument, "Be brief.\nVery.");  // lines joined by backslashes
  EXPECT_EQ(parsed("/system \n").argument, "");
  EXPECT_EQ(parsed("/tool {\"a\": 1}").argument, "{\"a\": 1}");
  EXPECT_EQ(parsed("/system").argument, "");
  EXPECT_EQ(parsed("/system Be brief.").argument, "Be brief.");
}

TEST(ChatCommands, EverythingElseIsAMessage) {
  for (const std::string_view line : {"", "Hi", " /reset", "//reset", "1/2"}) {
    EXPECT_FALSE(parse_chat_command(line).value().has_value()) << line;
  }
  EXPECT_EQ(message_of_line("//reset"), "/reset");
  EXPECT_EQ(message_of_line("a//b"), "a//b");
}

TEST(ChatCommands, WrongOnesSayWhy) {
  EXPECT_THAT(parse_chat_command("/rest").error().message, HasSubstr("did you mean /reset?"));
  EXPECT_THAT(parse_chat_command("/").error().message, HasSubstr("/help lists them"));
  EXPECT_THAT(parse_chat_command("/save").error().message, HasSubstr("/save FILE"));
  EXPECT_THAT(parse_chat_command("/undo 2").error().message, HasSubstr("found \"2\""));
}

TEST(ChatCommands, HelpNamesEachOfThem) {
  const std::string help = chat_help();
  for (const char* name : {"/help", "/reset", "/undo", "/save FILE", "/system [TEXT]", "/tool TEXT", "/quit"}) {
    EXPECT_THAT(help, HasSubstr(name));
  }
}

TEST(ConversationJson, IsReadBackAsTheSameChat) {
  ChatRequest request;
  request.messages = {
      {.role = Role::kSystem, .content = "Be brief."},
      {.role = Role::kUser, .content = "Weather?\n\"Paris\""},
      {.role = Role::kAssistant,
       .content = "",
       .reasoning_content = "hm",
       .tool_calls = {{.name = "weather", .arguments = R"({"city": "Paris"})", .arguments_are_text = true}}},
      {.role = Role::kTool, .content = "21"}};
  request.tools = {R"({"type":"function","function":{"name":"weather"}})"};
  request.enable_thinking = false;
  const Json json = parse_json(write_json(conversation_json(request))).value();
  const ChatRequest again = parse_chat_request(json).value();
  ASSERT_EQ(again.messages.size(), request.messages.size());
  for (size_t i = 0; i < again.messages.size(); ++i) {
    EXPECT_EQ(again.messages[i].role, request.messages[i].role);
    EXPECT_EQ(again.messages[i].content, request.messages[i].content);
    EXPECT_EQ(again.messages[i].reasoning_content, request.messages[i].reasoning_content);
  }
  ASSERT_EQ(again.messages[2].tool_calls.size(), 1U);
  EXPECT_EQ(again.messages[2].tool_calls[0].name, "weather");
  EXPECT_EQ(again.messages[2].tool_calls[0].arguments, R"({"city": "Paris"})");
  EXPECT_EQ(again.tools.size(), 1U);
  EXPECT_EQ(again.enable_thinking, false);
}

}  // namespace
}  // namespace kipp::cli
