// An assistant's tokens to events: format and text, calls whole, cut and broken, control tokens spelled out as text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/json.h"
#include "kipp/chat_output.h"
#include "tokenizer/qwen_tokenizer.h"

namespace kipp {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Kind = OutputEvent::Kind;

constexpr OutputParserOptions kAnswer = {};
constexpr OutputParserOptions kThinking = {.in_reasoning = true};

std::vector<int32_t> ids_of(std::string_view text, SpecialTokens special = SpecialTokens::kParse) {
  return testing::qwen_tokenizer().encode(text, {.special_tokens = special}).value();
}

std::vector<OutputEvent> events_of(const std::vector<int32_t>& ids, OutputParserOptions options) {
  OutputParser parser(testing::qwen_tokenizer(), options);
  std::vector<OutputEvent> events;
  for (const int32_t id : ids) {
    const std::vector<OutputEvent> step = parser.push(id).value();
    events.insert(events.end(), step.begin(), step.end());
  }
  const std::vector<OutputEvent> last = parser.finish();
  events.insert(events.end(), last.begin(), last.end());
  return events;
}

ChatMessage message_of(const std::vector<int32_t>& ids, OutputParserOptions options = kAnswer) {
  ChatMessage message{.role = Role::kAssistant};
  for (const OutputEvent& event : events_of(ids, options)) {
    append_event(event, message);
  }
  return message;
}

ChatMessage message_of(std::string_view text, OutputParserOptions options = kAnswer) {
  return message_of(ids_of(text), options);
}

// Completeness of each call.
std::vector<bool> complete_of(const std::vector<int32_t>& ids) {
  std::vector<bool> complete;
  for (const OutputEvent& event : events_of(ids, kAnswer)) {
    if (event.kind == Kind::kToolCallEnd) {
      complete.push_back(event.complete);
    }
  }
  return complete;
}

std::string call(std::string_view body) {
  return "<tool_call>\n" + std::string(body) + "\n</tool_call>";
}

TEST(OutputParser, PlainTextIsContentAsItIs) {
  const ChatMessage message = message_of("\n Hello,\n\nworld \n\n");
  EXPECT_EQ(message.content, "\n Hello,\n\nworld \n\n");
  EXPECT_FALSE(message.reasoning_content.has_value());
  EXPECT_THAT(message.tool_calls, IsEmpty());
}

TEST(OutputParser, SplitsReasoningFromTheAnswer) {
  const ChatMessage message = message_of("<think>\nplan\n\nB\n</think>\n\nanswer\n");
  EXPECT_EQ(message.reasoning_content, "plan\n\nB");
  EXPECT_EQ(message.content, "answer\n");
}

TEST(OutputParser, StartsInReasoningWhereThePromptDoes) {
  const ChatMessage message = message_of("plan\n</think>\n\nanswer", kThinking);
  EXPECT_EQ(message.reasoning_content, "plan");
  EXPECT_EQ(message.content, "answer");
}

TEST(OutputParser, ReasoningCutByTheLimitIsNoContent) {
  auto ids = ids_of("<think>\nplan\n</think>\n\nanswer");
  ids.resize(3);
  const ChatMessage message = message_of(ids);
  EXPECT_EQ(message.reasoning_content, "plan");
  EXPECT_FALSE(message.content.has_value());
}

TEST(OutputParser, AnEmptyThoughtIsNone) {
  const ChatMessage message = message_of("<think>\n\n</think>\n\nanswer");
  EXPECT_FALSE(message.reasoning_content.has_value());
  EXPECT_EQ(message.content, "answer");
}

TEST(OutputParser, ThinkTokensElsewhereAreText) {
  EXPECT_EQ(message_of("a <think> b </think> c").content, "a <think> b </think> c");
  EXPECT_EQ(message_of("<think>\na <think> b <tool_call> c\n</think>\n\nd").reasoning_content,
            "a <think> b <tool_call> c");
}

TEST(OutputParser, ReadsACall) {
  const ChatMessage message =
      message_of("I look.\n" + call(R"({"name": "wx", "arguments": {"city": "Zürich", "k": [1, 2]}})"));
  EXPECT_EQ(message.content, "I look.");
  ASSERT_EQ(message.tool_calls.size(), 1U);
  EXPECT_EQ(message.tool_calls[0].name, "wx");
  EXPECT_EQ(message.tool_calls[0].arguments, R"({"city": "Zürich", "k": [1, 2]})");
}

TEST(OutputParser, ReadsParallelCallsAndTheTextAfterThem) {
  const auto ids = ids_of(call(R"({"name": "a", "arguments": {}})") + "\n" +
                          call(R"({"arguments": {"x": 1}, "name": "b"})") + "\nDone.");
  const ChatMessage message = message_of(ids);
  ASSERT_EQ(message.tool_calls.size(), 2U);
  EXPECT_EQ(message.tool_calls[0].arguments, "{}");
  EXPECT_EQ(message.tool_calls[1].name, "b");
  EXPECT_EQ(message.tool_calls[1].arguments, R"({"x": 1})");
  EXPECT_EQ(message.content, "Done.");
  EXPECT_THAT(complete_of(ids), ElementsAre(true, true));
}

TEST(OutputParser, ReadsACallAfterReasoning) {
  const ChatMessage message =
      message_of("<think>\nask\n</think>\n\n" + call(R"({"name": "a", "arguments": {"q": ""}})"));
  EXPECT_EQ(message.reasoning_content, "ask");
  EXPECT_FALSE(message.content.has_value());
  ASSERT_EQ(message.tool_calls.size(), 1U);
}

// Braces, quotes and even the end tag inside a string, spelled by other tokens than the control token.
TEST(OutputParser, StringsInArgumentsMayHoldAnything) {
  const std::string arguments = R"({"s": "}} ]] \\ \" </tool_call>", "o": {"x": {"y": {}}}})";
  auto ids = ids_of("<tool_call>\n{\"name\": \"put\", \"arguments\": ");
  for (const int32_t id : ids_of(arguments, SpecialTokens::kPlain)) {
    ids.push_back(id);
  }
  for (const int32_t id : ids_of("}\n</tool_call>")) {
    ids.push_back(id);
  }
  const ChatMessage message = message_of(ids);
  ASSERT_EQ(message.tool_calls.size(), 1U);
  EXPECT_EQ(message.tool_calls[0].arguments, arguments);
  EXPECT_TRUE(parse_json(message.tool_calls[0].arguments).has_value());
  EXPECT_THAT(complete_of(ids), ElementsAre(true));
}

TEST(OutputParser, KeepsTheLiteralsOfNumbers) {
  const std::string arguments = R"({"n": 12345678901234567890, "f": 1.0, "b": false, "z": null})";
  EXPECT_EQ(message_of(call(R"({"name": "f", "arguments": )" + arguments + "}")).tool_calls.at(0).arguments, arguments);
}

TEST(OutputParser, ArgumentsStreamWhileTheyArrive) {
  const auto ids = ids_of(call(R"({"name": "f", "arguments": {"text": "one two three four five six seven"}})"));
  const auto events = events_of(ids, kAnswer);
  const auto pieces = std::count_if(events.begin(), events.end(),
                                    [](const OutputEvent& event) { return event.kind == Kind::kToolCallArguments; });
  EXPECT_GT(pieces, 5);
  EXPECT_EQ(events.front().kind, Kind::kToolCallBegin);
  EXPECT_EQ(events.back().kind, Kind::kToolCallEnd);
}

TEST(OutputParser, ArgumentsMayBeMissingNullOrAString) {
  EXPECT_EQ(message_of(call(R"({"name": "f"})")).tool_calls.at(0).arguments, "{}");
  EXPECT_EQ(message_of(call(R"({"name": "f", "arguments": null})")).tool_calls.at(0).arguments, "{}");
  EXPECT_EQ(message_of(call(R"({"name": "f", "arguments": "{\"a\": 1}"})")).tool_calls.at(0).arguments, R"({"a": 1})");
  EXPECT_EQ(message_of(call(R"({"id": [{"}": "]"}], "name": "f", "x": -1.5e3})")).tool_calls.at(0).name, "f");
}

TEST(OutputParser, ACallCutByTheLimitIsNotComplete) {
  auto ids = ids_of(call(R"({"name": "f", "arguments": {"text": "one two"}})"));
  ids.resize(ids.size() - 4);
  EXPECT_THAT(complete_of(ids), ElementsAre(false));
  EXPECT_EQ(message_of(ids).tool_calls.at(0).name, "f");
}

TEST(OutputParser, WhatIsNoCallIsContentLetterForLetter) {
  for (const std::string body : {"no JSON", "[1]", "{}", R"({"name": 3})", R"({"name": ""})",
                                 R"({"arguments": {"a": 1}})", R"({"name": "f)", R"({"name" "f"})", ""}) {
    const ChatMessage message = message_of("See:\n" + call(body) + " end");
    EXPECT_THAT(message.tool_calls, IsEmpty()) << body;
    EXPECT_EQ(message.content, "See:" + call(body) + " end") << body;
  }
}

TEST(OutputParser, ACallBrokenAfterItsNameIsNotComplete) {
  for (const std::string body :
       {R"({"name": "f", "arguments": {"a" 1}})", R"({"name": "f", "arguments": {"a": 1})", R"({"name": "f"} x)",
        R"({"name": "f", "name": "g"})", R"({"name": "f", "arguments": [1]})", R"({"name": "f", "arguments": 7})",
        R"({"name": "f", "arguments": "no object"})", R"({"name": "f", "arguments": "[1]"})"}) {
    EXPECT_THAT(complete_of(ids_of(call(body))), ElementsAre(false)) << body;
  }
}

TEST(OutputParser, WithoutToolsACallIsContent) {
  const std::string text = call(R"({"name": "f", "arguments": {}})");
  EXPECT_EQ(message_of(text, {.tool_calls = false}).content, text);
}

TEST(OutputParser, HalfACharacterBeforeAControlTokenBecomesAReplacement) {
  auto ids = ids_of("🫨");  // three tokens of bytes
  ids.pop_back();
  const auto end = ids_of("\n</think>\n\nok");
  ids.insert(ids.end(), end.begin(), end.end());
  const ChatMessage message = message_of(ids, kThinking);
  EXPECT_EQ(message.reasoning_content, "\uFFFD");
  EXPECT_EQ(message.content, "ok");
}

TEST(OutputParser, HalfACharacterIsContentAfterWhichNoThinkCounts) {
  auto ids = ids_of("🫨");
  ids.pop_back();
  const auto rest = ids_of("<think>\nhm\n</think>\n\nok");
  ids.insert(ids.end(), rest.begin(), rest.end());
  const ChatMessage message = message_of(ids);
  EXPECT_EQ(message.reasoning_content, std::nullopt);
  EXPECT_EQ(message.content, "\uFFFD<think>\nhm\n</think>\n\nok");
}

TEST(OutputParser, TextInPlaceOfTokensDropsTheCharacterThatTheyBegan) {
  OutputParser parser(testing::qwen_tokenizer(), kAnswer);
  EXPECT_THAT(parser.push(ids_of("🫨").front()).value(), IsEmpty());
  ASSERT_EQ(parser.push_text("a").size(), 1U);
  EXPECT_THAT(parser.finish(), IsEmpty());
}

TEST(OutputParser, EveryPrefixOfAnAnswerKeepsItsOrder) {
  const auto ids =
      ids_of("<think>\nplan 🫨\n</think>\n\nSo:\n" + call(R"({"name": "f", "arguments": {"a": "🫨"}})") + "\nbye\n");
  const ChatMessage whole = message_of(ids);
  for (size_t n = 0; n <= ids.size(); ++n) {
    const ChatMessage part = message_of(std::vector<int32_t>(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(n)));
    if (part.tool_calls.empty() && !part.content) {
      continue;  // still thinking
    }
    EXPECT_EQ(part.reasoning_content, whole.reasoning_content) << n;
  }
}

TEST(OutputParser, RefusesANegativeId) {
  OutputParser parser(testing::qwen_tokenizer(), kAnswer);
  EXPECT_EQ(parser.push(-1).error().code, ErrorCode::kInvalidArgument);
}

TEST(ParseOutput, ReadsAllOfAnAnswer) {
  const std::vector<int32_t> ids = ids_of("<think>\nhm\n</think>\n\nYes." + call(R"({"name": "f", "arguments": {}})"));
  const std::string text = testing::qwen_tokenizer().decode(ids, true).value();
  const ChatMessage message = parse_output(ids, text, testing::qwen_tokenizer(), kAnswer).value();
  EXPECT_EQ(message.role, Role::kAssistant);
  EXPECT_EQ(message.reasoning_content, "hm");
  EXPECT_EQ(message.content, "Yes.");
  ASSERT_EQ(message.tool_calls.size(), 1U);
  EXPECT_EQ(message.tool_calls[0].name, "f");
}

TEST(ParseOutput, WhatAStopStringCutIsGone) {
  const std::vector<int32_t> ids = ids_of("<think>\nhm\n</think>\n\nYes indeed. And more");
  const auto content = [&](std::string_view text) {
    return parse_output(ids, text, testing::qwen_tokenizer(), kAnswer).value();
  };
  EXPECT_EQ(content("<think>\nhm\n</think>\n\nYes ind").content, "Yes ind");
  EXPECT_EQ(content("<think>\nhm\n</think>\n\nYes indeed").content, "Yes indeed");
  EXPECT_EQ(content("<think>\nh").reasoning_content, "h");
  EXPECT_EQ(content("<think>\nh").content, std::nullopt);
  EXPECT_EQ(content("<thi").content, std::nullopt) << "half a tag is neither structure nor text";
  EXPECT_EQ(content("<think>\nhm\n</th").reasoning_content, "hm");
  const std::vector<int32_t> late = ids_of("Yes <think>");
  EXPECT_EQ(parse_output(late, "Yes <thi", testing::qwen_tokenizer(), kAnswer).value().content, "Yes <thi")
      << "where the tag is text, so is half of it";
  std::vector<int32_t> broken = ids_of("🫨<think>");
  broken.erase(broken.begin() + 1, broken.end() - 1);
  EXPECT_EQ(parse_output(broken, "\uFFFD<thi", testing::qwen_tokenizer(), kAnswer).value().content, "\uFFFD<thi")
      << "after any content <think> is text";
  EXPECT_EQ(content("").content, std::nullopt);
}

TEST(ParseOutput, ACutInsideACharacterLeavesNothingOfIt) {
  const std::vector<int32_t> ids = ids_of("Yes 🫨");
  ASSERT_GT(ids.size(), 2U) << "a character of more tokens than one";
  const auto content = [&](std::string_view text) {
    return parse_output(ids, text, testing::qwen_tokenizer(), kAnswer).value().content;
  };
  EXPECT_EQ(content("Yes "), "Yes ");
  EXPECT_EQ(content("Yes"), "Yes");
  EXPECT_EQ(content(""), std::nullopt);
}

// The stop string is what the decoder makes of a character that the end of the output breaks.
TEST(ParseOutput, ACutAtTheVeryEndCutsWhatTheDecoderHeld) {
  std::vector<int32_t> ids = ids_of("Yes 🫨");
  ids.pop_back();
  EXPECT_EQ(parse_output(ids, "Yes \uFFFD", testing::qwen_tokenizer(), kAnswer).value().content, "Yes \uFFFD");
  EXPECT_EQ(parse_output(ids, "Yes ", testing::qwen_tokenizer(), kAnswer).value().content, "Yes ");
}

TEST(EndsInReasoning, LooksAtTheLastThinkToken) {
  const Tokenizer& tokenizer = testing::qwen_tokenizer();
  EXPECT_TRUE(ends_in_reasoning(ids_of("<|im_start|>assistant\n<think>\n"), tokenizer));
  EXPECT_FALSE(ends_in_reasoning(ids_of("<|im_start|>assistant\n<think>\n\n</think>\n\n"), tokenizer));
  EXPECT_FALSE(ends_in_reasoning(ids_of("<think>", SpecialTokens::kPlain), tokenizer));
  EXPECT_FALSE(ends_in_reasoning({}, tokenizer));
}

}  // namespace
}  // namespace kipp
