// The renderer against the official templates' output (tests/golden/chat.jsonl) and the faults other engines had.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <set>

#include "chat/chat_cases.h"
#include "tokenizer/qwen_tokenizer.h"

namespace kipp {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using testing::rendered;

struct GoldenCase {
  std::string name;
  Variant variant;
  Json json;
};

std::vector<GoldenCase> golden_cases() {
  std::vector<GoldenCase> cases;
  std::ifstream file(KIPP_SOURCE_DIR "/tests/golden/chat.jsonl");
  for (std::string line; std::getline(file, line);) {
    Json json = parse_json(line).value();
    const std::string variant = json.find("variant")->as_string();
    const auto* found = std::find_if(std::begin(testing::kChatVariants), std::end(testing::kChatVariants),
                                     [&](Variant v) { return variant_name(v) == variant; });
    cases.push_back(GoldenCase{json.find("name")->as_string(), *found, std::move(json)});
  }
  return cases;
}

// Its unknown role is dropped by the template and refused by Kipp.
constexpr std::string_view kUnknownRole = "second_system_unknown_role/instruct-2507";

// Kipp's request for a case; of the one with an unknown role without that message, which the template drops.
ChatRequest golden_request(const GoldenCase& golden) {
  Json json = golden.json;
  if (golden.name == kUnknownRole) {
    std::vector<Json> messages = json.find("messages")->items();
    std::erase_if(messages, [](const Json& m) { return m.find("role")->as_string() == "developer"; });
    json.set("messages", Json::array(std::move(messages)));
  }
  return parse_chat_request(json).value();
}

std::vector<int32_t> ids_of(const Json& json) {
  std::vector<int32_t> ids;
  for (const Json& id : json.find("ids")->items()) {
    ids.push_back(static_cast<int32_t>(id.as_int64().value()));
  }
  return ids;
}

TEST(ChatGolden, RenderedTextIsTheTemplates) {
  const std::vector<GoldenCase> cases = golden_cases();
  ASSERT_EQ(cases.size(), 66U);
  for (const GoldenCase& golden : cases) {
    EXPECT_EQ(rendered(golden_request(golden), golden.variant), golden.json.find("rendered")->as_string())
        << golden.name;
  }
}

TEST(ChatGolden, UnknownRoleIsRefused) {
  for (const GoldenCase& golden : golden_cases()) {
    const Result<ChatRequest> request = parse_chat_request(golden.json);
    EXPECT_EQ(request.has_value(), golden.name != kUnknownRole) << golden.name;
    if (!request) {
      EXPECT_EQ(request.error().message,
                "messages[3].role: expected one of system, user, assistant, tool, found \"developer\"");
    }
  }
}

// The golden ids come from tokenising the whole text, control tokens in content included. In these cases content that
// reaches the prompt holds one, so Kipp's ids must differ; in all others they must be the same.
TEST(ChatGolden, IdsDifferOnlyWhereContentHoldsControlTokens) {
  const std::set<std::string_view> forged = {"hist_think_in_content/instruct-2507",
                                             "last_assistant_think_in_content/instruct-2507",
                                             "reasoning_content_and_think_tag/instruct",
                                             "tool_response_like_user/instruct",
                                             "tool_response_like_user_partial/instruct",
                                             "injected_special/instruct",
                                             "only_open_think/instruct",
                                             "only_open_think/thinking-2507",
                                             "json_escapes/instruct",
                                             "json_escapes/instruct-2507",
                                             "reasoning_empty_string_with_tags/instruct",
                                             "reasoning_empty_string_with_tags/thinking-2507"};
  const Tokenizer& tokenizer = testing::qwen_tokenizer();
  for (const GoldenCase& golden : golden_cases()) {
    const Result<RenderedPrompt> prompt = render_chat(golden_request(golden), golden.variant, tokenizer);
    ASSERT_TRUE(prompt) << golden.name << ": " << prompt.error().message;
    EXPECT_EQ(prompt->ids == ids_of(golden.json), !forged.contains(golden.name)) << golden.name;
    EXPECT_EQ(tokenizer.decode(prompt->ids).value(), prompt->text) << golden.name;
  }
}

TEST(Chat, ReasoningOfEarlierTurnsIsDropped) {
  EXPECT_EQ(rendered(R"({"messages":[{"role":"user","content":"one"},
      {"role":"assistant","content":"<think>\nplan A\n</think>\n\nB"},{"role":"user","content":"two"}]})"),
            "<|im_start|>user\none<|im_end|>\n<|im_start|>assistant\nB<|im_end|>\n<|im_start|>user\ntwo<|im_end|>\n"
            "<|im_start|>assistant\n");
}

TEST(Chat, NullAbsentAndEmptyContentAreTheSameBesideToolCalls) {
  const auto prompt = [](std::string_view content, Variant variant) {
    std::string json = R"({"messages":[{"role":"user","content":"rain?"},{"role":"assistant",)";
    json += content;
    json += R"("tool_calls":[{"id":"c","type":"function","function":{"name":"wx","arguments":"{}"}}]},)";
    json += R"({"role":"tool","tool_call_id":"c","content":"wet"}]})";
    return rendered(json, variant);
  };
  for (const Variant variant : testing::kChatVariants) {
    const std::string empty = prompt(R"("content":"",)", variant);
    EXPECT_THAT(empty, HasSubstr("<tool_call>\n{\"name\": \"wx\", \"arguments\": {}}\n</tool_call><|im_end|>"));
    EXPECT_EQ(prompt(R"("content":null,)", variant), empty);
    EXPECT_EQ(prompt("", variant), empty);
  }
}

TEST(Chat, ArgumentsAreNeverQuotedAgain) {
  const auto call = [](std::string_view arguments) {
    std::string json = R"({"messages":[{"role":"user","content":"go"},{"role":"assistant","tool_calls":[)";
    json += R"({"function":{"name":"f","arguments":)";
    json += arguments;
    const std::string text = rendered(json + "}}]}]}");
    const size_t begin = text.find("\"arguments\": ") + 13;
    return text.substr(begin, text.rfind("}\n</tool_call>") - begin);
  };
  EXPECT_EQ(call(R"({"city":"Zürich","k":[1,2]})"), R"({"city": "Zürich", "k": [1, 2]})");
  EXPECT_EQ(call(R"("{\"city\":\"Zürich\",\"k\":[1,2]}")"), R"({"city":"Zürich","k":[1,2]})");
  EXPECT_EQ(call(R"("{not json")"), "{not json");
  EXPECT_EQ(call(R"({"n":12345678901234567890,"f":1E5,"g":1.50,"z":-0})"),
            R"({"n": 12345678901234567890, "f": 100000.0, "g": 1.5, "z": 0})");
}

TEST(Chat, ThinkingSwitch) {
  const auto prompt = [](std::string_view fields, Variant variant) {
    return rendered(std::string(R"({"messages":[{"role":"user","content":"Hi"}])").append(fields).append("}"), variant);
  };
  constexpr std::string_view kNested = R"(,"chat_template_kwargs":{"enable_thinking":false})";
  constexpr std::string_view kOff = R"(,"enable_thinking":false)";
  constexpr std::string_view kOn = R"(,"enable_thinking":true)";
  constexpr std::string_view kTurn = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
  for (const std::string_view off : {kOff, kNested}) {
    EXPECT_EQ(prompt(off, Variant::kInstruct), std::string(kTurn) + "<think>\n\n</think>\n\n");
  }
  EXPECT_EQ(prompt(kOn, Variant::kInstruct), kTurn);
  EXPECT_EQ(prompt("", Variant::kInstruct), kTurn);
  for (const std::string_view fields : {kOff, kOn, kNested, std::string_view()}) {  // a no-op for both 2507 variants
    EXPECT_EQ(prompt(fields, Variant::kInstruct2507), kTurn);
    EXPECT_EQ(prompt(fields, Variant::kThinking2507), std::string(kTurn) + "<think>\n");
  }
  const Tokenizer& tokenizer = testing::qwen_tokenizer();
  ChatRequest request{.messages = {{.role = Role::kUser, .content = "Hi"}}};
  EXPECT_EQ(render_chat(request, Variant::kInstruct, tokenizer)->ids.size(), 9U);
  request.enable_thinking = false;
  EXPECT_EQ(render_chat(request, Variant::kInstruct, tokenizer)->ids.size(), 13U);
}

TEST(Chat, OnlyLineFeedsAreStripped) {
  EXPECT_THAT(rendered(R"({"messages":[{"role":"user","content":"q"},
      {"role":"assistant","content":"\n\r\n a","reasoning_content":"\n\n\t r \r\n\n"}]})"),
              HasSubstr("assistant\n<think>\n\t r \r\n</think>\n\n\r\n a<|im_end|>"));
}

// A user message without text (null, a list) is no query: reasoning before it is kept.
// The turn that the template would close stays open, on every variant; nothing else changes.
TEST(Chat, TheLastMessageMayBeContinued) {
  ChatRequest request = testing::request_of(R"({"messages":[{"role":"user","content":"q"},
      {"role":"assistant","content":"a <|im_end|>"},{"role":"user","content":"r"},
      {"role":"assistant","content":"The "}],"add_generation_prompt":false})")
                            .value();
  for (const Variant variant : {Variant::kInstruct, Variant::kInstruct2507, Variant::kThinking2507}) {
    request.continue_final_message = false;
    const std::string closed = rendered(request, variant);
    request.continue_final_message = true;
    EXPECT_EQ(rendered(request, variant) + "<|im_end|>\n", closed);
    EXPECT_TRUE(rendered(request, variant).ends_with("The "));
  }
  const auto refusal = [&](auto change) {
    ChatRequest changed = request;
    change(changed);
    return rendered(changed);
  };
  constexpr const char* kRefused = "error: continue_final_message: expected an assistant's message without tool calls";
  using ::testing::StartsWith;
  EXPECT_THAT(refusal([](ChatRequest& r) { r.messages.pop_back(); }), StartsWith(kRefused));
  EXPECT_THAT(refusal([](ChatRequest& r) { r.messages.back().tool_calls.resize(1); }), StartsWith(kRefused));
  EXPECT_THAT(refusal([](ChatRequest& r) { r.add_generation_prompt = true; }), StartsWith(kRefused));
}

TEST(Chat, MessageWithoutTextIsNoQuery) {
  const auto prompt = [](std::string_view content) {
    return rendered(std::string(R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a",)")
                        .append(R"("reasoning_content":"why"},{"role":"user","content":)")
                        .append(content)
                        .append("}]}"));
  };
  EXPECT_THAT(prompt("null"), HasSubstr("<think>\nwhy\n</think>\n\na<|im_end|>"));
  EXPECT_THAT(prompt("[]"), HasSubstr("<think>\nwhy\n</think>\n\na<|im_end|>"));
  EXPECT_THAT(prompt("\"\""), Not(HasSubstr("why")));
}

TEST(Chat, BaseCheckpointHasNoTemplate) {
  const ChatRequest request{.messages = {{.role = Role::kUser, .content = "Hi"}}};
  const Result<RenderedPrompt> prompt = render_chat(request, Variant::kBase, testing::qwen_base_tokenizer());
  ASSERT_FALSE(prompt);
  EXPECT_EQ(prompt.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(prompt.error().message, HasSubstr("no chat template"));
  EXPECT_THAT(prompt.error().message, HasSubstr("raw completion"));
}

// An artifact converted with a base tokenizer cannot spell <think>; that must not become text silently.
TEST(Chat, TokenizerWithoutAControlToken) {
  ChatRequest request{.messages = {{.role = Role::kUser, .content = "Hi"}}, .enable_thinking = false};
  const Result<RenderedPrompt> prompt = render_chat(request, Variant::kInstruct, testing::qwen_base_tokenizer());
  ASSERT_FALSE(prompt);
  EXPECT_EQ(prompt.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(prompt.error().message, HasSubstr("<think>"));
}

TEST(Chat, ErrorsNameTheirPlace) {
  EXPECT_EQ(rendered(ChatRequest{}), "error: messages: expected at least one message, found none");
  const ChatMessage user{.role = Role::kUser, .content = "Hi"};
  const std::string broken = "ab\xC3";
  const auto call = [&](ToolCall tool_call) {
    return rendered(ChatRequest{.messages = {user, {.role = Role::kAssistant, .tool_calls = {std::move(tool_call)}}}});
  };
  EXPECT_EQ(rendered(ChatRequest{.messages = {user, {.role = Role::kTool, .content = broken}}}),
            "error: messages[1].content: invalid UTF-8 at byte 2");
  EXPECT_EQ(rendered(ChatRequest{.messages = {{.role = Role::kAssistant, .reasoning_content = broken}}}),
            "error: messages[0].reasoning_content: invalid UTF-8 at byte 2");
  EXPECT_EQ(call({.name = broken, .arguments = "{}"}),
            "error: messages[1].tool_calls[0].name: invalid UTF-8 at byte 2");
  EXPECT_EQ(call({.name = "f", .arguments = broken, .arguments_are_text = true}),
            "error: messages[1].tool_calls[0].arguments: invalid UTF-8 at byte 2");
  EXPECT_THAT(call({.name = "f", .arguments = "{"}), HasSubstr("messages[1].tool_calls[0].arguments: JSON, byte 0: "));
  EXPECT_THAT(rendered(ChatRequest{.messages = {user}, .tools = {"{}", "{]"}}), HasSubstr("tools[1]: JSON, byte 1: "));
}

}  // namespace
}  // namespace kipp
