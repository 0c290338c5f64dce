// POST /v1/chat/completions: messages, tools, what the template is told, the two names of the limit.
#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/openai_cases.h"

namespace kipp::openai {
namespace {

using testing::chat_of_body;
using testing::chat_verdict;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using testing::with_messages;

constexpr std::string_view kTool = R"({"type":"function","function":{"name":"wx","parameters":{"type":"object"}}})";

std::string body_of(std::string_view messages) {
  return std::string(R"({"messages":)").append(messages).append("}");
}

// A conversation whose second message is this.
std::string message_verdict(std::string_view message) {
  return chat_verdict(body_of(std::string(R"([{"role":"user","content":"q"},)").append(message).append("]")));
}

TEST(OpenAiChatRequest, Messages) {
  const ChatCompletionRequest request = chat_of_body(body_of(R"([{"role":"system","content":"s"},
      {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"name":"Eve"},
      {"role":"assistant","content":null,"reasoning_content":"r","refusal":null,"annotations":[],"audio":null,
       "function_call":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"wx","arguments":"{}"}}]},
      {"role":"tool","tool_call_id":"c1","content":"wet"}])"));
  const auto& messages = request.chat.messages;
  ASSERT_EQ(messages.size(), 4U);
  EXPECT_EQ(messages[1].content, "a\nb");
  EXPECT_EQ(messages[2].content, std::nullopt);
  EXPECT_EQ(messages[2].reasoning_content, "r");
  EXPECT_EQ(messages[2].tool_calls.at(0).name, "wx");
  EXPECT_EQ(messages[3].role, Role::kTool);
  EXPECT_TRUE(request.chat.add_generation_prompt);
  EXPECT_FALSE(request.chat.continue_final_message || request.tool_calls);
}

TEST(OpenAiChatRequest, AnAssistantsContentMayBeNullOrAbsent) {
  for (const char* content : {R"("content":null,)", R"("content":"",)", ""}) {
    const std::string message = std::string(R"({"role":"assistant",)") + content +
                                R"("tool_calls":[{"type":"function","function":{"name":"wx","arguments":"{}"}}]})";
    EXPECT_EQ(message_verdict(message), "accepted") << content;
  }
  for (const char* role : {"user", "system", "tool"}) {
    EXPECT_EQ(message_verdict(std::string(R"({"role":")") + role + R"("})"),
              "400 invalid_value messages[1].content | messages[1].content: expected a string or an array of text "
              "parts, found nothing");
  }
}

// As a string they stay as they are; as an object they are written again, number literals kept.
TEST(OpenAiChatRequest, ArgumentsAsStringOrObject) {
  const auto arguments = [](std::string_view json) {
    const std::string call = std::string(R"([{"role":"user","content":"q"},{"role":"assistant","tool_calls":[
        {"type":"function","function":{"name":"wx","arguments":)")
                                 .append(json)
                                 .append("}}]}]");
    return chat_of_body(body_of(call)).chat.messages.at(1).tool_calls.at(0);
  };
  const ToolCall text = arguments(R"("{\"city\":\"Zürich\",\"k\":[1,2]}")");
  EXPECT_TRUE(text.arguments_are_text);
  EXPECT_EQ(text.arguments, R"({"city":"Zürich","k":[1,2]})");
  const ToolCall object = arguments(R"({"n":12345678901234567890,"f":1.0,"b":false,"z":null})");
  EXPECT_FALSE(object.arguments_are_text);
  EXPECT_EQ(object.arguments, R"({"n":12345678901234567890,"f":1.0,"b":false,"z":null})");
  EXPECT_EQ(arguments(R"("{broken")").arguments, "{broken");
}

struct BadMessages {
  const char* messages;
  const char* verdict;
};

class OpenAiMessages : public ::testing::TestWithParam<BadMessages> {};

TEST_P(OpenAiMessages, AreRefusedWithTheirPath) {
  EXPECT_EQ(chat_verdict(body_of(GetParam().messages)), std::string("400 ") + GetParam().verdict);
}

INSTANTIATE_TEST_SUITE_P(
    Bad, OpenAiMessages,
    ::testing::Values(
        BadMessages{"[]", "invalid_value messages | messages: expected an array that is not empty, found an empty one"},
        BadMessages{R"("hi")", "invalid_value messages | messages: expected an array that is not empty, found \"hi\""},
        BadMessages{"null",
                    "missing_required_parameter messages | messages: expected an array that is not empty, "
                    "found null"},
        BadMessages{"[5]", "invalid_value messages[0] | messages[0]: expected an object, found 5"},
        BadMessages{R"([{"content":"a"}])",
                    "missing_required_parameter messages[0].role | messages[0].role: expected \"system\" or \"user\" "
                    "or \"assistant\" or \"tool\", found nothing"},
        BadMessages{R"([{"role":7,"content":"a"}])",
                    "invalid_value messages[0].role | messages[0].role: expected \"system\" or \"user\" or "
                    "\"assistant\" or \"tool\", found 7"},
        BadMessages{R"([{"role":"user","content":"a"},{"role":"wizard","content":"a"}])",
                    "invalid_value messages[1].role | messages[1].role: expected \"system\" or \"user\" or "
                    "\"assistant\" or \"tool\", found \"wizard\""},
        BadMessages{R"([{"role":"user","content":5}])",
                    "invalid_value messages[0].content | messages[0].content: expected a string or an array of text "
                    "parts, found 5"},
        BadMessages{R"([{"role":"user","content":["a"]}])",
                    "invalid_value messages[0].content[0] | messages[0].content[0]: expected an object, found \"a\""},
        BadMessages{R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}])",
                    "invalid_value messages[0].content[0].type | messages[0].content[0].type: expected \"text\", "
                    "found \"image_url\""},
        BadMessages{R"([{"role":"user","content":[{"type":"text"}]}])",
                    "missing_required_parameter messages[0].content[0].text | messages[0].content[0].text: expected a "
                    "string, found nothing"},
        BadMessages{R"([{"role":"user","content":"a","reasoning":"b"}])",
                    "unknown_parameter messages[0].reasoning | messages[0].reasoning: unknown field"},
        BadMessages{R"([{"role":"user","content":"a","reasoning_content":"b"}])",
                    "invalid_value messages[0].reasoning_content | messages[0].reasoning_content: expected in an "
                    "assistant's message alone, found in one of role \"user\""},
        BadMessages{R"([{"role":"user","content":"a","tool_call_id":"b"}])",
                    "invalid_value messages[0].tool_call_id | messages[0].tool_call_id: expected in a tool's message "
                    "alone, found in one of role \"user\""},
        BadMessages{R"([{"role":"assistant","content":"a","refusal":"no"}])",
                    "unsupported_parameter messages[0].refusal | messages[0].refusal: Kipp does not support this "
                    "field; leave it out, or set it to \"\""},
        BadMessages{R"([{"role":"assistant","tool_calls":[{"name":"f","arguments":"{}"}]}])",
                    "missing_required_parameter messages[0].tool_calls[0].function | "
                    "messages[0].tool_calls[0].function: expected an object, found nothing"},
        BadMessages{R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":5}}]}])",
                    "invalid_value messages[0].tool_calls[0].function.arguments | "
                    "messages[0].tool_calls[0].function.arguments: expected a string or an object, found 5"},
        BadMessages{R"([{"role":"assistant","tool_calls":[{"function":{"arguments":"{}"}}]}])",
                    "missing_required_parameter messages[0].tool_calls[0].function.name | "
                    "messages[0].tool_calls[0].function.name: expected a string that is not empty, found nothing"}));

TEST(OpenAiChatRequest, ToolsGoToTheTemplateLetterForLetter) {
  const std::string body = with_messages(std::string(R"("tools":[)").append(kTool).append("]"));
  const ChatCompletionRequest request = chat_of_body(body);
  EXPECT_THAT(request.chat.tools, ElementsAre(kTool));
  EXPECT_TRUE(request.tool_calls && request.parallel_tool_calls);
  EXPECT_EQ(chat_verdict(with_messages(R"("tools":[{"type":"function","function":{"name":"f","strict":true}}])")),
            "400 unsupported_parameter tools[0].function.strict | tools[0].function.strict: Kipp does not support this "
            "field; leave it out, or set it to false");
  EXPECT_THAT(chat_verdict(with_messages(R"("tools":[{"type":"web_search"}])")),
              StartsWith("400 invalid_value tools[0].type | "));
  EXPECT_THAT(chat_verdict(with_messages(R"("tools":[{"type":"function"}])")),
              StartsWith("400 missing_required_parameter tools[0].function | "));
  EXPECT_THAT(chat_verdict(with_messages(R"("tools":{})")), StartsWith("400 invalid_value tools | "));
}

TEST(OpenAiChatRequest, ToolChoice) {
  const auto request = [](std::string_view choice) {
    return chat_of_body(
        with_messages(std::string(R"("tools":[)").append(kTool).append(R"(],"tool_choice":)").append(choice)));
  };
  EXPECT_TRUE(request(R"("auto")").tool_calls);
  EXPECT_TRUE(request("null").tool_calls);
  EXPECT_FALSE(request(R"("none")").tool_calls);
  EXPECT_THAT(request(R"("none")").chat.tools, ElementsAre(kTool));  // they stay in the prompt
  EXPECT_FALSE(chat_of_body(with_messages(R"("tools":[],"tool_choice":"auto")")).tool_calls);
  EXPECT_FALSE(chat_of_body(with_messages(R"("parallel_tool_calls":false)")).parallel_tool_calls);
  EXPECT_EQ(chat_verdict(with_messages(R"("tool_choice":"required")")),
            "400 invalid_value tool_choice | tool_choice: expected \"none\" or \"auto\" (Kipp does not support other "
            "choices), found \"required\"");
  EXPECT_THAT(chat_verdict(with_messages(R"("tool_choice":{"type":"function","function":{"name":"wx"}})")),
              HasSubstr("does not support other choices), found an object"));
}

TEST(OpenAiChatRequest, TheLongerNameOfTheLimitWins) {
  const auto limit = [](std::string_view fields) { return chat_of_body(with_messages(fields)).generation.max_tokens; };
  EXPECT_EQ(limit(R"("max_tokens":7,"max_completion_tokens":2)"), 2);
  EXPECT_EQ(limit(R"("max_completion_tokens":2,"max_tokens":7)"), 2);
  EXPECT_EQ(limit(R"("max_tokens":7)"), 7);
  EXPECT_EQ(limit(R"("max_completion_tokens":2)"), 2);
  EXPECT_EQ(limit(R"("max_tokens":7,"max_completion_tokens":0)"), 0);
  EXPECT_EQ(limit(R"("max_tokens":7,"max_completion_tokens":null)"), 7);
  for (const char* value : {"2.5", R"("2")", "[2]", "-1"}) {
    EXPECT_THAT(chat_verdict(with_messages(std::string(R"("max_completion_tokens":)") + value)),
                StartsWith("400 invalid_value max_completion_tokens | max_completion_tokens: expected an integer"));
  }
}

TEST(OpenAiChatRequest, Logprobs) {
  const auto number = [](std::string_view fields) {
    return chat_of_body(with_messages(fields)).generation.num_logprobs;
  };
  EXPECT_EQ(number(R"("n":1)"), -1);
  EXPECT_EQ(number(R"("logprobs":true)"), 0);
  EXPECT_EQ(number(R"("top_logprobs":20,"logprobs":true)"), 20);
  EXPECT_EQ(number(R"("logprobs":false,"top_logprobs":0)"), -1);
  EXPECT_EQ(chat_verdict(with_messages(R"("top_logprobs":2)")),
            "400 invalid_value top_logprobs | top_logprobs: expected \"logprobs\": true beside it, found nothing");
  EXPECT_THAT(chat_verdict(with_messages(R"("top_logprobs":2,"logprobs":false)")), HasSubstr("found false"));
  EXPECT_THAT(chat_verdict(with_messages(R"("logprobs":2)")), StartsWith("400 invalid_value logprobs"));
  EXPECT_THAT(chat_verdict(with_messages(R"("logprobs":true,"top_logprobs":21)")),
              StartsWith("400 invalid_value top_logprobs"));
}

TEST(OpenAiChatRequest, Thinking) {
  const auto thinking = [](std::string_view fields) {
    return chat_of_body(with_messages(fields)).chat.enable_thinking;
  };
  EXPECT_EQ(thinking(R"("chat_template_kwargs":{"enable_thinking":false})"), false);
  EXPECT_EQ(thinking(R"("enable_thinking":true)"), true);
  EXPECT_EQ(thinking(R"("chat_template_kwargs":{})"), std::nullopt);
  EXPECT_EQ(chat_verdict(with_messages(R"("chat_template_kwargs":{"thinking":true})")),
            "400 unknown_parameter chat_template_kwargs.thinking | chat_template_kwargs.thinking: unknown field");
  EXPECT_THAT(
      chat_verdict(with_messages(R"("enable_thinking":true,"chat_template_kwargs":{"enable_thinking":false})")),
      StartsWith("400 invalid_argument chat_template_kwargs.enable_thinking | chat_template_kwargs.enable_thinking: "));
}

TEST(OpenAiChatRequest, WhatTheVariantCannotDoIsRefused) {
  Defaults defaults;
  defaults.variant = Variant::kThinking2507;
  EXPECT_THAT(chat_verdict(with_messages(R"("chat_template_kwargs":{"enable_thinking":false})"), defaults),
              StartsWith("400 invalid_value chat_template_kwargs.enable_thinking | "));
  EXPECT_THAT(chat_verdict(with_messages(R"("enable_thinking":false)"), defaults),
              StartsWith("400 invalid_value enable_thinking | "));
  EXPECT_EQ(chat_verdict(with_messages(R"("enable_thinking":true)"), defaults), "accepted");
  defaults.variant = Variant::kInstruct2507;
  EXPECT_EQ(chat_verdict(with_messages(R"("enable_thinking":false)"), defaults), "accepted");
  defaults.variant = Variant::kBase;
  EXPECT_EQ(chat_verdict(with_messages(R"("n":1)"), defaults),
            "400 unsupported messages | messages: this base checkpoint has no chat template; use /v1/completions");
}

TEST(OpenAiChatRequest, ContinuingTheLastMessage) {
  const auto verdict_of = [](std::string_view last, std::string_view fields) {
    return chat_verdict(std::string(R"({"messages":[{"role":"user","content":"q"},)")
                            .append(last)
                            .append(R"(],"continue_final_message":true)")
                            .append(fields)
                            .append("}"));
  };
  constexpr std::string_view kAnswer = R"({"role":"assistant","content":"The"})";
  EXPECT_EQ(verdict_of(kAnswer, ""), "accepted");
  EXPECT_EQ(verdict_of(kAnswer, R"(,"add_generation_prompt":false)"), "accepted");
  EXPECT_THAT(verdict_of(kAnswer, R"(,"add_generation_prompt":true)"), HasSubstr("continue_final_message"));
  EXPECT_THAT(verdict_of(R"({"role":"user","content":"The"})", ""), HasSubstr("expected an assistant's message"));
  EXPECT_THAT(verdict_of(R"({"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{}"}}]})", ""),
              HasSubstr("without tool calls"));
  const ChatCompletionRequest request =
      chat_of_body(R"({"messages":[{"role":"assistant","content":"The"}],"continue_final_message":true})");
  EXPECT_TRUE(request.chat.continue_final_message);
  EXPECT_FALSE(request.chat.add_generation_prompt);
  EXPECT_FALSE(chat_of_body(with_messages(R"("add_generation_prompt":false)")).chat.add_generation_prompt);
}

struct Unsupported {
  const char* name;
  std::vector<const char*> passes;  // besides null
  const char* refused;
};

class OpenAiUnsupported : public ::testing::TestWithParam<Unsupported> {};

TEST_P(OpenAiUnsupported, PassesOnlyWhereItAsksForNothing) {
  const auto verdict_of = [](std::string_view value) {
    return chat_verdict(with_messages(std::string("\"") + GetParam().name + "\":" + std::string(value)));
  };
  EXPECT_EQ(verdict_of("null"), "accepted");
  for (const char* value : GetParam().passes) {
    EXPECT_EQ(verdict_of(value), "accepted") << value;
  }
  EXPECT_THAT(verdict_of(GetParam().refused), StartsWith(std::string("400 unsupported_parameter ") + GetParam().name +
                                                         " | " + GetParam().name + ": Kipp does not support"));
}

INSTANTIATE_TEST_SUITE_P(Fields, OpenAiUnsupported,
                         ::testing::Values(Unsupported{"audio", {}, R"({"voice":"x"})"},
                                           Unsupported{"functions", {"[]"}, R"([{"name":"f"}])"},
                                           Unsupported{"function_call", {R"("none")"}, R"("auto")"},
                                           Unsupported{"modalities", {R"(["text"])"}, R"(["text","audio"])"},
                                           Unsupported{"moderation", {}, "{}"},
                                           Unsupported{"prediction", {}, R"({"type":"content"})"},
                                           Unsupported{"prompt_cache_key", {}, R"("k")"},
                                           Unsupported{"prompt_cache_retention", {}, R"("24h")"},
                                           Unsupported{"reasoning_effort", {R"("medium")"}, R"("high")"},
                                           Unsupported{"safety_identifier", {}, R"("u")"},
                                           Unsupported{"service_tier", {R"("auto")", R"("default")"}, R"("flex")"},
                                           Unsupported{"store", {"false"}, "true"},
                                           Unsupported{"verbosity", {R"("medium")"}, R"("low")"},
                                           Unsupported{"web_search_options", {}, "{}"}));

TEST(OpenAiChatRequest, ResponseFormat) {
  EXPECT_EQ(chat_verdict(with_messages(R"("response_format":{"type":"text"})")), "accepted");
  EXPECT_EQ(chat_verdict(with_messages(R"("response_format":{"type":"json_object"})")),
            "400 invalid_value response_format.type | response_format.type: expected \"text\" (Kipp does not support "
            "other formats), found \"json_object\"");
  EXPECT_THAT(chat_verdict(with_messages(R"("response_format":{"type":"json_schema","json_schema":{}})")),
              StartsWith("400 invalid_value response_format.type"));
  EXPECT_THAT(chat_verdict(with_messages(R"("response_format":{})")),
              StartsWith("400 missing_required_parameter response_format.type"));
  EXPECT_THAT(chat_verdict(with_messages(R"("response_format":"text")")),
              StartsWith("400 invalid_value response_format"));
}

TEST(OpenAiChatRequest, ALenientServerIgnoresUnknownFieldsOfMessagesToo) {
  Defaults defaults;
  defaults.lenient = true;
  const ChatCompletionRequest request = chat_of_body(
      R"({"messages":[{"role":"user","content":[{"type":"text","text":"a","x":1}],"x":2}],
          "chat_template_kwargs":{"thinking":true,"enable_thinking":false},"x":3,
          "tools":[{"type":"function","x":4,"function":{"name":"f","x":5}}]})",
      defaults);
  EXPECT_EQ(request.chat.messages.at(0).content, "a");
  EXPECT_EQ(request.chat.enable_thinking, false);
  EXPECT_THAT(request.chat.tools, ElementsAre(R"({"type":"function","function":{"name":"f"}})"));
  EXPECT_THAT(chat_verdict(R"({"messages":[{"role":"wizard","content":""}]})", defaults), StartsWith("400 "));
}

TEST(OpenAiChatRequest, FieldsOfCompletionsAreUnknownHere) {
  for (const char* fields : {R"("prompt":"x")", R"("echo":true)", R"("best_of":1)", R"("plain":true)"}) {
    EXPECT_THAT(chat_verdict(with_messages(fields)), StartsWith("400 unknown_parameter")) << fields;
  }
}

}  // namespace
}  // namespace kipp::openai
