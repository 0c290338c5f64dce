// /v1/completions on forced texts: log-probabilities, offsets, stops, and prompts at the edge of the context.
#include <gmock/gmock.h>

#include <algorithm>

#include <fmt/format.h>

#include "server/api/api_fixture.h"
#include "server/sse.h"

namespace kipp::testing {
namespace {

using openai::testing::at;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class CompletionAnswers : public ApiTest {
 protected:
  // A prompt of ids that no text is needed for.
  std::string ids_prompt(size_t count, std::string_view fields) {
    std::vector<int32_t> prompt(count);
    std::string items;
    for (size_t i = 0; i < count; ++i) {
      prompt[i] = static_cast<int32_t>(1000 + i);
      items += (i == 0 ? "" : ",") + std::to_string(prompt[i]);
    }
    backend().add({.prompt = prompt, .choices = {std::vector<int32_t>(40, 1000)}});
    return fmt::format(R"({{"prompt":[{}],"temperature":0,{}}})", items, fields);
  }
};

std::vector<int64_t> numbers(const Json& array) {
  std::vector<int64_t> values;
  for (const Json& item : array.items()) values.push_back(item.as_int64().value_or(-1));
  return values;
}

TEST_F(CompletionAnswers, LogProbabilitiesAreFourArraysWithOffsetsInCharacters) {
  script_prompt("Zürich", {" über 🫨x"});
  const ApiAnswer answer = complete("Zürich", R"("logprobs":2)");
  EXPECT_EQ(answer.said().content, " über 🫨x");
  const Json& logprobs = at(answer.json, "choices", 0, "logprobs");
  const size_t count = answer.said().tokens.size();
  EXPECT_GT(count, 4U);
  for (const char* key : {"tokens", "token_logprobs", "top_logprobs", "text_offset"}) {
    EXPECT_THAT(at(logprobs, key).items(), SizeIs(count)) << key;
  }
  const std::vector<int64_t> offsets = numbers(at(logprobs, "text_offset"));
  EXPECT_EQ(offsets.front(), 0);
  EXPECT_TRUE(std::ranges::is_sorted(offsets));
  EXPECT_EQ(offsets.back(), 7) << "characters, not bytes";
  for (const Json& top : at(logprobs, "top_logprobs").items()) EXPECT_THAT(top.members(), SizeIs(2));
  const ApiAnswer chosen_only = complete("Zürich", R"("logprobs":0)");
  for (const Json& top : at(chosen_only.json, "choices", 0, "logprobs", "top_logprobs").items()) {
    EXPECT_THAT(top.members(), SizeIs(1));
  }
}

TEST_F(CompletionAnswers, WithEchoTheyBeginWithThePrompt) {
  script_prompt("Zürich is", {" big"});
  const ApiAnswer answer = complete("Zürich is", R"("logprobs":1,"echo":true)");
  EXPECT_EQ(answer.said().content, "Zürich is big");
  const Json& logprobs = at(answer.json, "choices", 0, "logprobs");
  EXPECT_TRUE(at(logprobs, "token_logprobs", 0).is_null());
  EXPECT_EQ(numbers(at(logprobs, "text_offset")).back(), 9);
  const ApiAnswer scored = complete("Zürich is", R"("logprobs":1,"echo":true,"max_tokens":0)");
  EXPECT_EQ(scored.said().content, "Zürich is");
  EXPECT_EQ(scored.said().finish, "length");
}

TEST_F(CompletionAnswers, AStopStringOverTokensIsNeverSent) {
  script_prompt("say", {" alpha beta gamma"});
  const ApiAnswer answer = complete("say", R"("stop":["a g"])");
  EXPECT_EQ(answer.said().content, " alpha bet");
  EXPECT_EQ(answer.said().finish, "stop");
  for (const Json& event : answer.events) {
    EXPECT_EQ(at(event, "choices", 0, "text").as_string().find("a g"), std::string::npos);
  }
  EXPECT_EQ(complete("say", R"("stop":["a g"],"min_tokens":3)").said().content, " alpha beta gamma");
}

TEST_F(CompletionAnswers, PromptsAndChoicesKeepTheirPlaces) {
  script_prompt("first", {" a", " b"});
  script_prompt("second", {" c", " d"});
  for (const char* stream : {"false", "true"}) {
    const ApiAnswer answer =
        ask("/v1/completions",
            fmt::format(R"({{"prompt":["first","second"],"n":2,"temperature":0,"echo":true,"stream":{}}})", stream));
    std::vector<std::string> texts;
    texts.reserve(answer.choices.size());
    for (const Said& choice : answer.choices) texts.push_back(choice.content);
    EXPECT_THAT(texts, ElementsAre("first a", "first b", "second c", "second d")) << stream;
  }
}

TEST_F(CompletionAnswers, APromptAtTheEdgeOfTheContext) {
  const auto error_of = [&](size_t count) {
    const ApiAnswer refused = ask("/v1/completions", ids_prompt(count, R"("max_tokens":8)"));
    EXPECT_EQ(refused.status, 400);
    return at(refused.json, "error", "message").as_string();
  };
  EXPECT_THAT(error_of(8001), ::testing::AllOf(HasSubstr("8001"), HasSubstr("1024"), HasSubstr("6978")));
  EXPECT_THAT(error_of(1024), HasSubstr("1024"));
  const ApiAnswer last = ask("/v1/completions", ids_prompt(1023, R"("max_tokens":8)"));
  EXPECT_EQ(at(*last.usage, "completion_tokens").as_int64(), 1);
  EXPECT_EQ(last.said().finish, "length");
  const ApiAnswer cut = ask("/v1/completions", ids_prompt(1000, R"("max_tokens":2000)"));
  EXPECT_EQ(at(*cut.usage, "completion_tokens").as_int64(), 24);
  EXPECT_EQ(cut.said().finish, "length");
}

TEST_F(CompletionAnswers, ASecondTimeThePromptComesFromTheCache) {
  const std::string body = ids_prompt(512, R"("max_tokens":8,"logprobs":1)");
  const ApiAnswer first = ask("/v1/completions", body);
  const uint64_t rows = backend().num_prompt_rows();
  const ApiAnswer second = ask("/v1/completions", body);
  EXPECT_EQ(rows, 512U);
  EXPECT_LE(backend().num_prompt_rows() - rows, 32U);
  EXPECT_GE(backend().num_prompt_rows() - rows, 1U) << "one row at least is computed: it predicts the first token";
  EXPECT_EQ(second.choices, first.choices);
  EXPECT_EQ(write_json(at(second.json, "choices")), write_json(at(first.json, "choices"))) << "log-probabilities too";
  EXPECT_EQ(at(*first.usage, "prompt_tokens_details", "cached_tokens").as_int64(), 0);
  EXPECT_GE(at(*second.usage, "prompt_tokens_details", "cached_tokens").as_int64().value_or(0), 480);
}

TEST_F(CompletionAnswers, ManyBiasesAreRefusedAndManyAllowedOnesAreQuick) {
  script_prompt("say", {" one"});
  const auto biases = [](int32_t count) {
    std::string text;
    for (int32_t id = count; id > 0; --id) text += fmt::format(R"({}"{}":1)", text.empty() ? "" : ",", id);
    return fmt::format(R"({{"prompt":"say","temperature":0,"logit_bias":{{{}}}}})", text);
  };
  EXPECT_EQ(ask("/v1/completions", biases(1024)).said().content, " one");
  const ApiAnswer refused = ask("/v1/completions", biases(1025));
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(at(refused.json, "error", "message").as_string(), HasSubstr("1025"));
}

// 8 blocks are 256 positions, the context is 1,024.
class SmallPool : public ApiTest {
 protected:
  SmallPool() : ApiTest(8) {}
};

TEST_F(SmallPool, WithoutALimitAnAnswerEndsWhereThePoolDoes) {
  backend().add({.prompt = chat_prompt(""), .choices = {std::vector<int32_t>(600, 1000)}});
  const ApiAnswer answer = chat("");
  EXPECT_EQ(answer.status, 200) << write_json(answer.json);
  EXPECT_EQ(at(*answer.usage, "total_tokens").as_int64(), 256);
  EXPECT_EQ(answer.said().finish, "length");
  const ApiAnswer refused = chat(R"("max_tokens":400)");
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(at(refused.json, "error", "code").as_string(), "capacity");
}

}  // namespace
}  // namespace kipp::testing
