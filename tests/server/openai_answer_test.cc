// Whole answers: their shape, usage, timings, calls; a chat's message goes back into a request as it is.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/openai/answer_fields.h"
#include "server/openai/answers.h"
#include "server/openai_cases.h"
#include "server/sse.h"

namespace kipp::openai {
namespace {

using testing::at;
using testing::chat_of_body;

const Identity kIdentity = {.id = "cmpl-1", .created = 1700000000, .model = "kipp-demo", .system_fingerprint = "fp"};
const Usage kUsage = {.prompt_tokens = 9, .completion_tokens = 4, .cached_tokens = 3, .reasoning_tokens = 1};

// An answer has the documented fields and no others.
void expect_documented(const Json& answer, const std::vector<Field>& fields) {
  const auto checked = check(answer, object(fields), Path(), Rules{.num_tokens = kNumTokens});
  EXPECT_TRUE(checked.has_value()) << (checked ? "" : checked.error().message);
}

TEST(OpenAiAnswer, Completion) {
  const std::vector<CompletionChoice> choices = {{.text = "a\n\"b\"", .finish = Finish::kStop},
                                                 {.text = "", .finish = Finish::kLength}};
  const Json answer = completion_json(kIdentity, choices, kUsage, nullptr);
  EXPECT_EQ(write_json(answer),
            R"({"id":"cmpl-1","object":"text_completion","created":1700000000,"model":"kipp-demo",)"
            R"("system_fingerprint":"fp","choices":[)"
            R"({"text":"a\n\"b\"","index":0,"logprobs":null,"finish_reason":"stop"},)"
            R"({"text":"","index":1,"logprobs":null,"finish_reason":"length"}],)"
            R"("usage":{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13,)"
            R"("prompt_tokens_details":{"cached_tokens":3},"completion_tokens_details":{"reasoning_tokens":1}}})");
  expect_documented(answer, completion_answer_fields());
}

TEST(OpenAiAnswer, EachChoiceHasItsOwnOffsets) {
  const std::vector<TokenLogprob> tokens = {{.bytes = "ab", .logprob = -1.0F}, {.bytes = "c", .logprob = -1.0F}};
  const std::vector<CompletionChoice> choices = {{.text = "abc", .logprobs = tokens},
                                                 {.text = "abc", .logprobs = tokens}};
  const Json answer = completion_json(kIdentity, choices, kUsage, nullptr);
  for (const int i : {0, 1}) {
    EXPECT_EQ(write_json(at(answer, "choices", i, "logprobs", "text_offset")), "[0,2]");
  }
  expect_documented(answer, completion_answer_fields());
}

TEST(OpenAiAnswer, ChatCompletion) {
  ChatChoice choice;
  choice.message = {.content = "B", .reasoning_content = "plan"};
  choice.logprobs = {{{.bytes = "B", .logprob = -0.5F, .top = {{"B", -0.5F}}}}};
  const Json answer = chat_completion_json(kIdentity, std::vector{choice}, kUsage, nullptr);
  EXPECT_EQ(at(answer, "object").as_string(), "chat.completion");
  EXPECT_EQ(write_json(at(answer, "choices", 0, "message")),
            R"({"role":"assistant","content":"B","reasoning_content":"plan"})");
  EXPECT_EQ(at(answer, "choices", 0, "logprobs", "content", 0, "token").as_string(), "B");
  EXPECT_EQ(at(answer, "choices", 0, "finish_reason").as_string(), "stop");
  expect_documented(answer, chat_answer_fields());
}

// Thinking that the limit cut: the reasoning has what came, the content is empty.
TEST(OpenAiAnswer, WithoutContentItIsEmpty) {
  ChatChoice choice;
  choice.message.reasoning_content = "plan";
  choice.finish = Finish::kLength;
  const Json answer = chat_completion_json(kIdentity, std::vector{choice}, kUsage, nullptr);
  EXPECT_EQ(write_json(at(answer, "choices", 0)),
            R"({"index":0,"message":{"role":"assistant","content":"","reasoning_content":"plan"},"logprobs":null,)"
            R"("finish_reason":"length"})");
}

TEST(OpenAiAnswer, ToolCallsKeepTheirTextAndGoBackIntoARequest) {
  const std::string arguments = R"({"n": 12345678901234567890, "f": 1.0, "s": "}} ]] \\ \" </tool_call"})";
  ChatChoice choice;
  choice.message.tool_calls = {{.name = "put", .arguments = arguments}, {.name = "nop", .arguments = "{}"}};
  const Json answer = chat_completion_json(kIdentity, std::vector(2, choice), kUsage, nullptr);
  expect_documented(answer, chat_answer_fields());
  EXPECT_EQ(at(answer, "choices", 1, "finish_reason").as_string(), "tool_calls");
  const Json& message = at(answer, "choices", 1, "message");
  EXPECT_EQ(at(message, "content").as_string(), "");
  EXPECT_EQ(at(message, "tool_calls", 0, "function", "arguments").as_string(), arguments);
  EXPECT_EQ(at(message, "tool_calls", 1, "id").as_string(), "call_1_1_1");

  const Json body = Json::object({{"messages", Json::array({message})}});
  const ChatMessage again = chat_of_body(write_json(body)).chat.messages.at(0);
  ASSERT_EQ(again.tool_calls.size(), 2U);
  EXPECT_EQ(again.tool_calls[0].arguments, arguments);
  EXPECT_TRUE(again.tool_calls[0].arguments_are_text);
  EXPECT_EQ(again.tool_calls[1].name, "nop");
  EXPECT_EQ(again.tool_calls[1].id, "call_1_1_1");
}

TEST(OpenAiAnswer, CallIdsDifferByChoiceAndCall) {
  EXPECT_EQ(tool_call_id({.id = "chatcmpl-ab-c"}, 0, 1), "call_ab-c_0_1");
  EXPECT_EQ(tool_call_id({.id = "plain"}, 2, 0), "call_plain_2_0");
}

// A call that the limit cut is no finished one: the client must not run it unwarned.
TEST(OpenAiAnswer, FinishReasons) {
  const auto reason = [](Finish finish, bool has_call) {
    ChatChoice choice;
    choice.finish = finish;
    choice.message.tool_calls.resize(has_call ? 1 : 0);
    return at(chat_completion_json(kIdentity, std::vector{choice}, kUsage, nullptr), "choices", 0, "finish_reason")
        .as_string();
  };
  EXPECT_EQ(reason(Finish::kStop, false), "stop");
  EXPECT_EQ(reason(Finish::kStop, true), "tool_calls");
  EXPECT_EQ(reason(Finish::kLength, true), "length");
  EXPECT_EQ(reason(Finish::kAbort, false), "abort");
  EXPECT_EQ(reason(Finish::kError, true), "error");
}

TEST(OpenAiAnswer, TimingsHaveLlamaCppsNames) {
  const Timings timings = {
      .cached_tokens = 3, .prompt_tokens = 6, .prompt_ms = 12.0, .predicted_tokens = 4, .predicted_ms = 8.0};
  EXPECT_EQ(write_json(timings_json(timings)),
            R"({"cache_n":3,"prompt_n":6,"prompt_ms":12.0,"prompt_per_token_ms":2.0,"prompt_per_second":500.0,)"
            R"("predicted_n":4,"predicted_ms":8.0,"predicted_per_token_ms":2.0,"predicted_per_second":500.0})");
  EXPECT_EQ(write_json(timings_json({})),
            R"({"cache_n":0,"prompt_n":0,"prompt_ms":0.0,"prompt_per_token_ms":0.0,"prompt_per_second":0.0,)"
            R"("predicted_n":0,"predicted_ms":0.0,"predicted_per_token_ms":0.0,"predicted_per_second":0.0})");
  const Json completion = completion_json(kIdentity, std::vector<CompletionChoice>(1), kUsage, &timings);
  EXPECT_EQ(at(completion, "timings", "prompt_n").as_int64(), 6);
  expect_documented(completion, completion_answer_fields());
  const Json chat = chat_completion_json(kIdentity, std::vector<ChatChoice>(1), kUsage, &timings);
  EXPECT_EQ(at(chat, "timings", "predicted_n").as_int64(), 4);
  expect_documented(chat, chat_answer_fields());
}

TEST(OpenAiAnswer, ErrorsAreDocumented) {
  expect_documented(error_json(prompt_too_long(9, 8, "prompt")), error_answer_fields());
  expect_documented(error_json(ApiError{.message = "m"}), error_answer_fields());
}

}  // namespace
}  // namespace kipp::openai
