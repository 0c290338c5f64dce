// Calls whose JSON breaks at the start of a value, and a parser that moves while an answer arrives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>
#include <utility>

#include "kipp/chat_output.h"
#include "tokenizer/qwen_tokenizer.h"

namespace kipp {
namespace {

using ::testing::IsEmpty;

std::vector<int32_t> ids_of(std::string_view text) {
  return testing::qwen_tokenizer().encode(text).value();
}

void take(OutputParser& parser, std::span<const int32_t> ids, ChatMessage& message) {
  for (const int32_t id : ids) {
    const std::vector<OutputEvent> events = parser.push(id).value();
    for (const OutputEvent& event : events) {
      append_event(event, message);
    }
  }
}

ChatMessage finished(OutputParser& parser, ChatMessage message) {
  for (const OutputEvent& event : parser.finish()) {
    append_event(event, message);
  }
  return message;
}

TEST(OutputParserEdge, AMissingValueBeforeTheNameIsContent) {
  for (const char* body : {R"({"name":,"arguments":{}})", R"({"name":})", R"({"arguments": , "name": "f"})"}) {
    const std::string text = "<tool_call>\n" + std::string(body) + "\n</tool_call>";
    OutputParser parser(testing::qwen_tokenizer(), {});
    ChatMessage message{.role = Role::kAssistant};
    take(parser, ids_of(text), message);
    message = finished(parser, std::move(message));
    EXPECT_EQ(message.content, text);
    EXPECT_THAT(message.tool_calls, IsEmpty());
  }
}

TEST(OutputParserEdge, AMissingValueAfterTheNameMakesTheCallIncomplete) {
  for (const char* body : {R"({"name":"f","arguments":})", R"({"name":"f","arguments":,"x":1})"}) {
    OutputParser parser(testing::qwen_tokenizer(), {});
    size_t num_incomplete = 0;
    for (const int32_t id : ids_of("<tool_call>\n" + std::string(body) + "\n</tool_call>")) {
      const std::vector<OutputEvent> events = parser.push(id).value();
      for (const OutputEvent& event : events) {
        num_incomplete += event.kind == OutputEvent::Kind::kToolCallEnd && !event.complete ? 1U : 0U;
      }
    }
    EXPECT_EQ(num_incomplete, 1U) << body;
  }
}

// The text, the thought and the call that are under way go along.
TEST(OutputParserEdge, MovesInTheMiddleOfAnAnswer) {
  const std::string text =
      "<think>\nhm\n</think>\n\nLet me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";
  const std::vector<int32_t> ids = ids_of(text);
  for (size_t cut = 0; cut <= ids.size(); ++cut) {
    OutputParser first(testing::qwen_tokenizer(), {});
    ChatMessage message{.role = Role::kAssistant};
    take(first, std::span(ids).first(cut), message);
    OutputParser second(std::move(first));
    OutputParser third(testing::qwen_tokenizer(), {.in_reasoning = true});
    third = std::move(second);
    take(third, std::span(ids).subspan(cut), message);
    message = finished(third, std::move(message));
    EXPECT_EQ(message.reasoning_content, "hm");
    EXPECT_EQ(message.content, "Let me see.");
    ASSERT_EQ(message.tool_calls.size(), 1U);
    EXPECT_EQ(message.tool_calls[0].name, "f");
    EXPECT_EQ(message.tool_calls[0].arguments, "{\"a\": 1}");
  }
}

}  // namespace
}  // namespace kipp
