// POST /v1/completions: shapes of the prompt, and fields of its own.
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/openai_cases.h"

namespace kipp::openai {
namespace {

using testing::completion_of;
using testing::completion_verdict;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using testing::with_prompt;
using Ids = std::vector<int32_t>;
using Prompt = CompletionRequest::Prompt;

std::vector<Prompt> prompts_of(std::string_view prompt) {
  return completion_of(std::string(R"({"prompt":)").append(prompt).append("}")).prompts;
}

std::string prompt_verdict(std::string_view prompt) {
  return completion_verdict(std::string(R"({"prompt":)").append(prompt).append("}"));
}

TEST(OpenAiCompletionRequest, APromptIsTextOrIdsOrSeveral) {
  EXPECT_THAT(prompts_of(R"("Hi")"), ElementsAre(Prompt("Hi")));
  EXPECT_THAT(prompts_of(R"(["Hi","there"])"), ElementsAre(Prompt("Hi"), Prompt("there")));
  EXPECT_THAT(prompts_of("[13048]"), ElementsAre(Prompt(Ids{13048})));
  EXPECT_THAT(prompts_of("[1,2,0,151668]"), ElementsAre(Prompt(Ids{1, 2, 0, 151668})));
  EXPECT_THAT(prompts_of("[[1],[2,3]]"), ElementsAre(Prompt(Ids{1}), Prompt(Ids{2, 3})));
  EXPECT_THAT(prompts_of(R"("a\u0000b")"), ElementsAre(Prompt(std::string("a\0b", 3))));
  EXPECT_THAT(prompts_of(R"("\ud83d\ude00")"), ElementsAre(Prompt("😀")));
}

TEST(OpenAiCompletionRequest, APromptWithNothingToPredictFromIsRefused) {
  EXPECT_THAT(prompt_verdict(R"("")"), HasSubstr("prompt: expected a string that is not empty, found an empty one"));
  EXPECT_THAT(prompt_verdict("[]"), StartsWith("400 invalid_value prompt | "));
  EXPECT_THAT(prompt_verdict(R"([""])"), StartsWith("400 invalid_value prompt[0] | "));
  EXPECT_THAT(prompt_verdict(R"(["a",""])"), StartsWith("400 invalid_value prompt[1] | "));
  EXPECT_THAT(prompt_verdict("[[]]"), StartsWith("400 invalid_value prompt[0] | "));
  EXPECT_THAT(prompt_verdict("[[1],[]]"), StartsWith("400 invalid_value prompt[1] | "));
  EXPECT_THAT(completion_verdict("{}"), StartsWith("400 missing_required_parameter prompt | prompt: expected "));
  EXPECT_THAT(prompt_verdict("null"), HasSubstr("found null"));
}

TEST(OpenAiCompletionRequest, MixedAndStrangePromptsAreRefusedWhereTheyAre) {
  EXPECT_EQ(prompt_verdict(R"([1,"a"])"),
            "400 invalid_value prompt[1] | prompt[1]: expected a token id from 0 to 151668, found \"a\"");
  EXPECT_EQ(prompt_verdict(R"(["a",1])"),
            "400 invalid_value prompt[1] | prompt[1]: expected a string that is not empty, found 1");
  EXPECT_EQ(prompt_verdict("[[1],2]"),
            "400 invalid_value prompt[1] | prompt[1]: expected an array of token ids, found 2");
  EXPECT_EQ(prompt_verdict("[[1],[2,-3]]"),
            "400 invalid_value prompt[1][1] | prompt[1][1]: expected a token id from 0 to 151668, found -3");
  EXPECT_EQ(prompt_verdict("[151669]"),
            "400 invalid_value prompt[0] | prompt[0]: expected a token id from 0 to 151668, found 151669");
  EXPECT_EQ(prompt_verdict("[1.5]"),
            "400 invalid_value prompt[0] | prompt[0]: expected a token id from 0 to 151668, found 1.5");
  for (const char* prompt : {"5", "true", "{}", "[true]", "[null]", "[{}]", R"([["a"]])"}) {
    EXPECT_THAT(prompt_verdict(prompt), StartsWith("400 invalid_value prompt | prompt: expected a string")) << prompt;
  }
}

TEST(OpenAiCompletionRequest, OwnFields) {
  const CompletionRequest request = completion_of(with_prompt(R"("echo":true,"logprobs":0,"plain":true,"model":"m")"));
  EXPECT_TRUE(request.echo && request.plain);
  EXPECT_EQ(request.generation.num_logprobs, 0);
  EXPECT_EQ(request.model, "m");
  EXPECT_EQ(completion_of(with_prompt(R"("logprobs":20)")).generation.num_logprobs, 20);
  EXPECT_EQ(completion_of(with_prompt(R"("logprobs":null)")).generation.num_logprobs, -1);
  EXPECT_EQ(completion_verdict(with_prompt(R"("logprobs":21)")),
            "400 invalid_value logprobs | logprobs: expected an integer from 0 to 20, found 21");
  EXPECT_EQ(completion_verdict(with_prompt(R"("logprobs":true)")),
            "400 invalid_value logprobs | logprobs: expected an integer from 0 to 20, found true");
  EXPECT_EQ(completion_verdict(with_prompt(R"("echo":"yes")")),
            "400 invalid_value echo | echo: expected true or false, found \"yes\"");
}

TEST(OpenAiCompletionRequest, OfficialFieldsThatKippLacksPassOnlyWhereTheyAskForNothing) {
  EXPECT_EQ(completion_verdict(with_prompt(R"("best_of":1,"suffix":null)")), "accepted");
  EXPECT_EQ(completion_verdict(with_prompt(R"("best_of":null,"suffix":"")")), "accepted");
  EXPECT_EQ(
      completion_verdict(with_prompt(R"("best_of":2)")),
      "400 unsupported_parameter best_of | best_of: Kipp does not support this field; leave it out, or set it to 1");
  EXPECT_THAT(completion_verdict(with_prompt(R"("suffix":"}")")), StartsWith("400 unsupported_parameter suffix"));
}

TEST(OpenAiCompletionRequest, FieldsOfAChatAreUnknownHere) {
  for (const char* fields : {R"("messages":[])", R"("tools":[])", R"("max_completion_tokens":2)", R"("top_logprobs":1)",
                             R"("enable_thinking":false)"}) {
    EXPECT_THAT(completion_verdict(with_prompt(fields)), StartsWith("400 unknown_parameter")) << fields;
  }
}

// Half a million ids are checked and kept; nothing grows with their number but the result.
TEST(OpenAiCompletionRequest, LongPrompts) {
  std::string ids = "[7";
  for (int i = 1; i < 500'000; ++i) {
    ids += ",7";
  }
  const auto prompts = prompts_of(ids + "]");
  ASSERT_EQ(prompts.size(), 1U);
  EXPECT_EQ(std::get<Ids>(prompts.front()).size(), 500'000U);
  EXPECT_THAT(prompt_verdict(ids + ",-1]"), StartsWith("400 invalid_value prompt[500000] | "));
}

}  // namespace
}  // namespace kipp::openai
