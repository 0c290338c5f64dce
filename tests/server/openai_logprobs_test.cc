// Log-probabilities in both forms: texts of tokens that are no whole characters, offsets in characters, echo.
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/openai/answers.h"
#include "server/sse.h"
#include "tokenizer/qwen_tokenizer.h"

namespace kipp::openai {
namespace {

using openai::testing::at;
using ::testing::ElementsAre;

TokenLogprob token(std::string bytes, float logprob = -1.0F) {
  return {.bytes = std::move(bytes), .logprob = logprob};
}

std::vector<int64_t> offsets_of(const Json& logprobs) {
  std::vector<int64_t> offsets;
  for (const Json& offset : at(logprobs, "text_offset").items()) {
    offsets.push_back(offset.as_int64().value());
  }
  return offsets;
}

TEST(OpenAiLogprobs, ATokensTextIsUniqueAndValid) {
  EXPECT_EQ(token_text("Hi"), "Hi");
  EXPECT_EQ(token_text(" 世"), " 世");
  EXPECT_EQ(token_text(""), "");
  EXPECT_EQ(token_text("\xf0\x9f"), R"(bytes:\xf0\x9f)");
  EXPECT_EQ(token_text("a\x80"), R"(bytes:\x61\x80)");
  EXPECT_NE(token_text("\xf0\x9f"), token_text("\xf0\x9e"));
}

TEST(OpenAiLogprobs, LegacyFormHasFourArraysOfEqualLength) {
  TokenLogprob first = token("Hello", -0.25F);
  first.top = {{"Hello", -0.25F}, {"Hi", -1.5F}};
  TokenLogprob second = token(" you", -3.0F);
  second.top = {{" there", -0.5F}, {" world", -1.0F}};
  TextOffset offset;
  EXPECT_EQ(write_json(completion_logprobs_json(std::vector{first, second}, offset)),
            R"({"tokens":["Hello"," you"],"token_logprobs":[-0.25,-3],)"
            R"("top_logprobs":[{"Hello":-0.25,"Hi":-1.5},{" there":-0.5," world":-1," you":-3}],"text_offset":[0,5]})");
  EXPECT_EQ(offset.characters, 9);
}

TEST(OpenAiLogprobs, ZeroMeansTheChosenTokenAlone) {
  TextOffset offset;
  EXPECT_EQ(write_json(completion_logprobs_json(std::vector{token("a")}, offset)),
            R"({"tokens":["a"],"token_logprobs":[-1],"top_logprobs":[{"a":-1}],"text_offset":[0]})");
  EXPECT_EQ(write_json(chat_logprobs_json(std::vector{token("a")})),
            R"({"content":[{"token":"a","logprob":-1,"bytes":[97],"top_logprobs":[]}],"refusal":null})");
}

TEST(OpenAiLogprobs, TheFirstTokenOfAnEchoedPromptHasNone) {
  TokenLogprob first = token("Hi");
  first.logprob.reset();
  TextOffset offset;
  EXPECT_EQ(write_json(completion_logprobs_json(std::vector{first, token("!")}, offset)),
            R"({"tokens":["Hi","!"],"token_logprobs":[null,-1],"top_logprobs":[null,{"!":-1}],"text_offset":[0,2]})");
}

// Counted in characters, not bytes; a token inside a character begins where that does.
TEST(OpenAiLogprobs, OffsetsCountCharacters) {
  TextOffset offset;
  const std::vector tokens = {token("é"), token("世界"), token("\xf0\x9f"), token("\xab"), token("\xa8"), token("x")};
  EXPECT_THAT(offsets_of(completion_logprobs_json(tokens, offset)), ElementsAre(0, 1, 3, 3, 3, 4));
  EXPECT_EQ(offset.characters, 5);
  EXPECT_THAT(offsets_of(completion_logprobs_json(std::vector{token("y")}, offset)), ElementsAre(5));  // goes on
}

TEST(OpenAiLogprobs, ControlTokensTakeNoRoom) {
  TokenLogprob control = token("<|im_start|>");
  control.in_text = false;
  TextOffset offset;
  EXPECT_THAT(offsets_of(completion_logprobs_json(std::vector{token("ab"), control, token("c")}, offset)),
              ElementsAre(0, 2, 2));
}

TEST(OpenAiLogprobs, NoTokenNoEntry) {
  TextOffset offset;
  EXPECT_EQ(write_json(completion_logprobs_json({}, offset)),
            R"({"tokens":[],"token_logprobs":[],"top_logprobs":[],"text_offset":[]})");
}

TEST(OpenAiLogprobs, ChatFormHasBytes) {
  TokenLogprob part = token("\xe4\xb8", -0.5F);
  part.top = {{"\xe4\xb8", -0.5F}, {"A", -2.0F}};
  EXPECT_EQ(
      write_json(chat_logprobs_json(std::vector{part})),
      R"({"content":[{"token":"bytes:\\xe4\\xb8","logprob":-0.5,"bytes":[228,184],"top_logprobs":[)"
      R"({"token":"bytes:\\xe4\\xb8","logprob":-0.5,"bytes":[228,184]},{"token":"A","logprob":-2,"bytes":[65]}]}],)"
      R"("refusal":null})");
}

TEST(OpenAiLogprobs, JsonHasNoInfinity) {
  TextOffset offset;
  const Json json = completion_logprobs_json(std::vector{token("a", -std::numeric_limits<float>::infinity())}, offset);
  EXPECT_EQ(at(json, "token_logprobs", 0).literal(), "-9999");
}

TEST(OpenAiLogprobs, FromTheSampler) {
  const Tokenizer& tokenizer = kipp::testing::qwen_tokenizer();
  const SampledToken sampled = {.id = 9707, .logprob = -0.125F, .top_logprobs = {{9707, -0.125F}, {13048, -2.0F}}};
  const TokenLogprob token = token_logprob(sampled, tokenizer).value();
  EXPECT_EQ(token.bytes, "Hello");
  EXPECT_EQ(token.logprob, -0.125F);
  EXPECT_TRUE(token.in_text);
  ASSERT_EQ(token.top.size(), 2U);
  EXPECT_EQ(token.top[1].first, "Hi");
  EXPECT_FALSE(token_logprob({.id = kImEnd}, tokenizer).value().in_text);
  EXPECT_FALSE(token_logprob({.id = -1}, tokenizer).has_value());
}

}  // namespace
}  // namespace kipp::openai
