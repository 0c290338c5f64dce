// Chat requests from JSON: accepted shapes, and refusals with a path.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "chat/chat_cases.h"

namespace kipp {
namespace {

using testing::request_of;

std::string error_of(std::string_view json, ContentRule rule = ContentRule::kAsTemplate) {
  const Result<ChatRequest> request = request_of(json, rule);
  if (request) {
    return "accepted";
  }
  EXPECT_EQ(request.error().code, ErrorCode::kInvalidArgument);
  return request.error().message;
}

std::string message_error(std::string_view message, ContentRule rule = ContentRule::kAsTemplate) {
  return error_of(std::string(R"({"messages":[{"role":"user","content":"q"},)").append(message).append("]}"), rule);
}

TEST(ChatRequest, Fields) {
  const ChatRequest request = request_of(R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":"u"},
      {"role":"assistant","content":null,"reasoning_content":"r","tool_calls":[
        {"id":"call_1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}},
        {"name":"g","arguments":{"x":1.50}},{"function":null,"name":"h","arguments":null}]},
      {"role":"tool","tool_call_id":"call_1","content":"t"}],
      "tools":[{"type":"function","function":{"name":"f"}}],"add_generation_prompt":false,"temperature":1})")
                                  .value();
  ASSERT_EQ(request.messages.size(), 4U);
  EXPECT_EQ(request.messages[0].role, Role::kSystem);
  EXPECT_EQ(request.messages[1].content, "u");
  const ChatMessage& assistant = request.messages[2];
  EXPECT_EQ(assistant.content, std::nullopt);
  EXPECT_EQ(assistant.reasoning_content, "r");
  ASSERT_EQ(assistant.tool_calls.size(), 3U);
  EXPECT_EQ(assistant.tool_calls[0].id, "call_1");
  EXPECT_EQ(assistant.tool_calls[0].arguments, R"({"a":1})");
  EXPECT_TRUE(assistant.tool_calls[0].arguments_are_text);
  EXPECT_EQ(assistant.tool_calls[1].name, "g");
  EXPECT_EQ(assistant.tool_calls[1].arguments, R"({"x":1.50})");
  EXPECT_FALSE(assistant.tool_calls[1].arguments_are_text);
  EXPECT_EQ(assistant.tool_calls[2].arguments, "null");
  EXPECT_EQ(request.messages[3].role, Role::kTool);
  EXPECT_EQ(request.tools, std::vector<std::string>{R"({"type":"function","function":{"name":"f"}})"});
  EXPECT_FALSE(request.add_generation_prompt);
  EXPECT_EQ(request.enable_thinking, std::nullopt);
}

TEST(ChatRequest, NullIsAbsent) {
  const ChatRequest request = request_of(R"({"messages":[{"role":"assistant","content":null,"tool_calls":null,
      "reasoning_content":null}],"tools":null,"enable_thinking":null,"chat_template_kwargs":null,
      "add_generation_prompt":null})")
                                  .value();
  EXPECT_EQ(request.messages[0].reasoning_content, std::nullopt);
  EXPECT_TRUE(request.tools.empty());
  EXPECT_TRUE(request.add_generation_prompt);
}

TEST(ChatRequest, EnableThinking) {
  const auto thinking = [](std::string_view fields) {
    std::string json = R"({"messages":[{"role":"user","content":"q"}],)";
    return request_of(json.append(fields).append("}")).value().enable_thinking;
  };
  EXPECT_EQ(thinking(R"("enable_thinking":false)"), false);
  EXPECT_EQ(thinking(R"("chat_template_kwargs":{"enable_thinking":true,"other":1})"), true);
  EXPECT_EQ(thinking(R"("enable_thinking":true,"chat_template_kwargs":{"enable_thinking":true})"), true);
  EXPECT_EQ(thinking(R"("chat_template_kwargs":{})"), std::nullopt);
}

TEST(ChatRequest, UnknownFieldsAreNamedWhereTheTemplateIsNotTheRule) {
  const auto parse = [](std::string_view json, ContentRule rule) {
    return parse_chat_request(parse_json(json).value(), rule);
  };
  constexpr std::string_view kMisspelt = R"({"messages":[{"role":"user","content":"q"},
      {"role":"assistant","reasoning":"hm"}]})";
  EXPECT_TRUE(parse(kMisspelt, ContentRule::kAsTemplate).has_value());
  EXPECT_EQ(
      parse(kMisspelt, ContentRule::kTextParts).error().message,
      "messages[1]: expected the fields role, content, reasoning_content, tool_calls, name, tool_call_id, refusal, "
      "annotations alone, found \"reasoning\"");
  constexpr std::string_view kOther = R"({"messages":[{"role":"user"}],"chat_template_kwargs":{"thinking":true}})";
  EXPECT_TRUE(parse(kOther, ContentRule::kAsTemplate).has_value());
  EXPECT_EQ(parse(kOther, ContentRule::kTextParts).error().message,
            "chat_template_kwargs: expected the fields enable_thinking alone, found \"thinking\"");
  constexpr std::string_view kOfClients = R"({"messages":[{"role":"user","content":"q","name":"Eve"},
      {"role":"assistant","content":"a","refusal":null,"annotations":[],"audio":null,"function_call":null},
      {"role":"tool","content":"21","tool_call_id":"call_1","name":"weather"}],
      "chat_template_kwargs":{"enable_thinking":false,"other":null}})";
  EXPECT_TRUE(parse(kOfClients, ContentRule::kTextParts).has_value());
}

TEST(ChatRequest, ContentThatIsNoString) {
  constexpr std::string_view kParts =
      R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]})";
  EXPECT_EQ(request_of(kParts)->messages[0].content, std::nullopt);
  EXPECT_EQ(request_of(kParts, ContentRule::kTextParts)->messages[0].content, "a\nb");
  for (const char* content : {"5", "true", "{}", "[]", "[5]"}) {
    const std::string message = std::string(R"({"role":"user","content":)").append(content).append("}");
    EXPECT_EQ(message_error(message), "accepted") << content;
    EXPECT_EQ(message_error(message, ContentRule::kTextParts) == "accepted", std::string_view(content) == "[]");
  }
  const auto strict = [](std::string_view message) { return message_error(message, ContentRule::kTextParts); };
  EXPECT_EQ(strict(R"({"role":"user","content":5})"),
            "messages[1].content: expected a string, null or an array of text parts, found a number");
  EXPECT_EQ(strict(R"({"role":"user","content":["a"]})"), "messages[1].content[0]: expected an object, found \"a\"");
  EXPECT_EQ(strict(R"({"role":"user","content":[{"type":"image_url","image_url":{}}]})"),
            "messages[1].content[0].type: expected \"text\" (the only kind of content part), found \"image_url\"");
  EXPECT_EQ(strict(R"({"role":"user","content":[{"type":"text"}]})"),
            "messages[1].content[0].text: expected a string, found nothing");
  EXPECT_EQ(strict(R"({"role":"assistant","reasoning_content":5})"),
            "messages[1].reasoning_content: expected a string or null, found a number");
  EXPECT_EQ(message_error(R"({"role":"assistant","reasoning_content":5})"), "accepted");
}

TEST(ChatRequest, RefusalsNameTheirPath) {
  EXPECT_EQ(error_of("[1,2]"), "the request: expected an object, found an array");
  EXPECT_EQ(error_of("{}"), "messages: expected an array, found nothing");
  EXPECT_EQ(error_of(R"({"messages":"hi"})"), "messages: expected an array, found \"hi\"");
  EXPECT_EQ(error_of(R"({"messages":[]})"), "messages: expected at least one message, found none");
  EXPECT_EQ(message_error("7"), "messages[1]: expected an object, found a number");
  EXPECT_EQ(message_error(R"({"content":"x"})"),
            "messages[1].role: expected one of system, user, assistant, tool, found nothing");
  EXPECT_EQ(message_error(R"({"role":7})"),
            "messages[1].role: expected one of system, user, assistant, tool, found a number");
  EXPECT_EQ(message_error(R"({"role":"User"})"),
            "messages[1].role: expected one of system, user, assistant, tool, found \"User\"");
  EXPECT_EQ(error_of(R"({"messages":[{"role":"user"}],"tools":{}})"), "tools: expected an array, found an object");
  EXPECT_EQ(error_of(R"({"messages":[{"role":"user"}],"tools":["t"]})"), "tools[0]: expected an object, found \"t\"");
  EXPECT_EQ(error_of(R"({"messages":[{"role":"user"}],"enable_thinking":"no"})"),
            "enable_thinking: expected true or false, found \"no\"");
  EXPECT_EQ(error_of(R"({"messages":[{"role":"user"}],"chat_template_kwargs":{"enable_thinking":0}})"),
            "chat_template_kwargs.enable_thinking: expected true or false, found a number");
  EXPECT_EQ(error_of(R"({"messages":[{"role":"user"}],"chat_template_kwargs":[]})"),
            "chat_template_kwargs: expected an object, found an array");
  EXPECT_EQ(error_of(R"({"messages":[{"role":"user"}],"enable_thinking":true,
                         "chat_template_kwargs":{"enable_thinking":false}})"),
            "chat_template_kwargs.enable_thinking: expected the same value as enable_thinking, found false");
  EXPECT_EQ(error_of(R"({"messages":[{"role":"user"}],"add_generation_prompt":1})"),
            "add_generation_prompt: expected true or false, found a number");
}

TEST(ChatRequest, ToolCallRefusals) {
  const auto call = [](std::string_view json) {
    return message_error(std::string(R"({"role":"assistant","tool_calls":)").append(json).append("}"));
  };
  EXPECT_EQ(call("{}"), "messages[1].tool_calls: expected an array, found an object");
  EXPECT_EQ(call("[1]"), "messages[1].tool_calls[0]: expected an object, found a number");
  EXPECT_EQ(call("[{}]"), "messages[1].tool_calls[0].name: expected a string, found nothing");
  EXPECT_EQ(call(R"([{"function":"f"}])"), "messages[1].tool_calls[0].function: expected an object, found \"f\"");
  EXPECT_EQ(call(R"([{"function":{"name":5,"arguments":{}}}])"),
            "messages[1].tool_calls[0].function.name: expected a string, found a number");
  EXPECT_EQ(call(R"([{"name":"a","arguments":{}},{"function":{"name":"f"}}])"),
            "messages[1].tool_calls[1].function.arguments: expected JSON text or a JSON value, found nothing");
  EXPECT_EQ(call(R"([{"id":1,"name":"a","arguments":{}}])"),
            "messages[1].tool_calls[0].id: expected a string, found a number");
}

}  // namespace
}  // namespace kipp
