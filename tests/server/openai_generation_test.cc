// Fields that both kinds of generation have: ranges, zeros, defaults, unknown names.
#include <cmath>
#include <limits>
#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/openai/request_fields.h"
#include "server/openai_cases.h"

namespace kipp::openai {
namespace {

using testing::chat_of_body;
using testing::chat_verdict;
using testing::completion_of;
using testing::completion_verdict;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::StartsWith;
using testing::with_messages;
using testing::with_prompt;

Generation generation_of(std::string_view fields, const Defaults& defaults = {}) {
  const Generation completion = completion_of(with_prompt(fields), defaults).generation;
  const Generation chat = chat_of_body(with_messages(fields), defaults).generation;
  EXPECT_EQ(completion.sampling.temperature, chat.sampling.temperature);
  EXPECT_EQ(completion.seed, chat.seed);
  EXPECT_EQ(completion.stop, chat.stop);
  return completion;
}

// Of both endpoints, which must agree.
std::string field_verdict(std::string_view fields) {
  const std::string completion = completion_verdict(with_prompt(fields));
  EXPECT_EQ(completion, chat_verdict(with_messages(fields)));
  return completion;
}

TEST(OpenAiGeneration, Fields) {
  const Generation all = generation_of(
      R"("temperature":0.5,"top_p":0.25,"top_k":7,"min_p":0.125,"presence_penalty":-2,"frequency_penalty":2,
         "repetition_penalty":1.5,"logit_bias":{"0":-100,"151668":100},"seed":9,"n":3,"max_tokens":11,"min_tokens":2,
         "stop":["a","b"],"stop_token_ids":[1,2],"ignore_eos":true,"stream":true,
         "stream_options":{"include_usage":true,"continuous_usage_stats":true},"priority":-4,"cache_salt":"s",
         "user":"u","metadata":{"k":"v","l":""})");
  EXPECT_EQ(all.sampling.temperature, 0.5F);
  EXPECT_EQ(all.sampling.top_p, 0.25F);
  EXPECT_EQ(all.sampling.top_k, 7);
  EXPECT_EQ(all.sampling.min_p, 0.125F);
  EXPECT_EQ(all.sampling.presence_penalty, -2.0F);
  EXPECT_EQ(all.sampling.frequency_penalty, 2.0F);
  EXPECT_EQ(all.sampling.repetition_penalty, 1.5F);
  EXPECT_THAT(all.sampling.logit_bias, ElementsAre(Pair(0, -100.0F), Pair(151668, 100.0F)));
  EXPECT_EQ(all.seed, 9U);
  EXPECT_EQ(all.n, 3);
  EXPECT_EQ(all.max_tokens, 11);
  EXPECT_EQ(all.min_tokens, 2);
  EXPECT_THAT(all.stop, ElementsAre("a", "b"));
  EXPECT_THAT(all.stop_token_ids, ElementsAre(1, 2));
  EXPECT_TRUE(all.ignore_eos && all.stream && all.include_usage && all.continuous_usage);
  EXPECT_EQ(all.priority, -4);
  EXPECT_EQ(all.cache_salt, "s");
  EXPECT_EQ(all.user, "u");
  EXPECT_THAT(all.metadata, ElementsAre(Pair("k", "v"), Pair("l", "")));
}

TEST(OpenAiGeneration, WhatIsNotSaidIsTheServersOrOff) {
  Defaults defaults;
  defaults.sampling = {.temperature = 0.6F, .top_k = 20, .top_p = 0.95F};
  for (const char* fields : {R"("user":"u")", R"("temperature":null,"top_k":null,"seed":null,"n":null,"stop":null,
       "logit_bias":null,"stream":null,"stream_options":null,"max_tokens":null,"metadata":null,"priority":null)"}) {
    const Generation none = generation_of(fields, defaults);
    EXPECT_EQ(none.sampling.temperature, 0.6F);
    EXPECT_EQ(none.sampling.top_k, 20);
    EXPECT_EQ(none.sampling.top_p, 0.95F);
    EXPECT_EQ(none.sampling.min_p, 0.0F);
    EXPECT_EQ(none.sampling.repetition_penalty, 1.0F);  // no hidden penalty
    EXPECT_EQ(none.sampling.presence_penalty, 0.0F);
    EXPECT_EQ(none.sampling.frequency_penalty, 0.0F);
    EXPECT_THAT(none.sampling.logit_bias, IsEmpty());
    EXPECT_EQ(none.seed, std::nullopt);
    EXPECT_EQ(none.n, 1);
    EXPECT_EQ(none.num_logprobs, -1);
    EXPECT_FALSE(none.stream || none.include_usage || none.continuous_usage || none.ignore_eos);
  }
  EXPECT_EQ(completion_of(with_prompt(R"("n":1)")).generation.max_tokens, 16);
  EXPECT_EQ(chat_of_body(with_messages(R"("n":1)")).generation.max_tokens, std::nullopt);
  defaults.completion_tokens.reset();
  EXPECT_EQ(completion_of(with_prompt(R"("n":1)"), defaults).generation.max_tokens, std::nullopt);
}

TEST(OpenAiGeneration, ZeroIsAValue) {
  Defaults defaults;
  defaults.sampling = {.temperature = 0.6F, .top_k = 20, .top_p = 0.95F, .min_p = 0.5F};
  defaults.sampling.presence_penalty = 1.0F;
  defaults.sampling.frequency_penalty = 1.0F;
  const Generation zeros = generation_of(
      R"("temperature":0,"top_k":0,"top_p":0,"min_p":0.0,"presence_penalty":0,"frequency_penalty":-0.0,"seed":0,
         "max_tokens":0,"min_tokens":0,"priority":0)",
      defaults);
  EXPECT_EQ(zeros.sampling.temperature, 0.0F);
  EXPECT_EQ(zeros.sampling.top_k, 0);
  EXPECT_EQ(zeros.sampling.top_p, 0.0F);
  EXPECT_EQ(zeros.sampling.min_p, 0.0F);
  EXPECT_EQ(zeros.sampling.presence_penalty, 0.0F);
  EXPECT_EQ(zeros.sampling.frequency_penalty, 0.0F);
  EXPECT_EQ(zeros.seed, 0U);
  EXPECT_EQ(zeros.max_tokens, 0);
  EXPECT_EQ(generation_of(R"("temperature":1e-6)").sampling.temperature, 1e-6F);
  EXPECT_EQ(generation_of(R"("top_k":-1)", defaults).sampling.top_k, 0);  // vLLM's "off"
}

TEST(OpenAiGeneration, WhatPassesSuitsTheSampler) {
  for (const char* fields :
       {R"("temperature":0)", R"("temperature":3.4e38)", R"("top_p":1,"min_p":1)", R"("top_k":2147483647)",
        R"("repetition_penalty":1e-45)", R"("repetition_penalty":3.4e38)", R"("logit_bias":{"0":-100,"151668":100})"}) {
    const Generation generation = generation_of(fields);
    EXPECT_TRUE(validate(generation.sampling, kNumTokens).has_value()) << fields;
  }
}

struct Refusal {
  const char* fields;
  const char* message;
};

class OpenAiRange : public ::testing::TestWithParam<Refusal> {};

TEST_P(OpenAiRange, IsRefusedByName) {
  const std::string verdict = field_verdict(GetParam().fields);
  const std::string message = GetParam().message;
  const std::string param = message.substr(0, message.find(':'));
  EXPECT_EQ(verdict, "400 invalid_value " + param + " | " + message);
}

INSTANTIATE_TEST_SUITE_P(
    Fields, OpenAiRange,
    ::testing::Values(
        Refusal{R"("temperature":-0.1)", "temperature: expected a number of at least 0, found -0.1"},
        Refusal{R"("temperature":"hot")", "temperature: expected a number of at least 0, found \"hot\""},
        Refusal{R"("temperature":1e39)", "temperature: expected a number of at least 0, found 1e39"},
        Refusal{R"("temperature":true)", "temperature: expected a number of at least 0, found true"},
        Refusal{R"("top_p":1.1)", "top_p: expected a number from 0 to 1, found 1.1"},
        Refusal{R"("top_p":[1])", "top_p: expected a number from 0 to 1, found an array"},
        Refusal{R"("min_p":-1)", "min_p: expected a number from 0 to 1, found -1"},
        Refusal{R"("top_k":-2)", "top_k: expected an integer from -1 to 2147483647, found -2"},
        Refusal{R"("top_k":1.0)", "top_k: expected an integer from -1 to 2147483647, found 1.0"},
        Refusal{R"("presence_penalty":2.5)", "presence_penalty: expected a number from -2 to 2, found 2.5"},
        Refusal{R"("frequency_penalty":-3)", "frequency_penalty: expected a number from -2 to 2, found -3"},
        Refusal{R"("repetition_penalty":0)", "repetition_penalty: expected a number above 0, found 0"},
        Refusal{R"("repetition_penalty":1e-60)", "repetition_penalty: expected a number above 0, found 1e-60"},
        Refusal{R"("seed":1.5)",
                "seed: expected an integer from -9223372036854775808 to 18446744073709551615, found 1.5"},
        Refusal{R"("seed":"7")",
                "seed: expected an integer from -9223372036854775808 to 18446744073709551615, found \"7\""},
        Refusal{R"("seed":18446744073709551616)",
                "seed: expected an integer from -9223372036854775808 to 18446744073709551615, found "
                "18446744073709551616"},
        Refusal{R"("n":0)", "n: expected an integer from 1 to 128, found 0"},
        Refusal{R"("n":129)", "n: expected an integer from 1 to 128, found 129"},
        Refusal{R"("max_tokens":-1)", "max_tokens: expected an integer of at least 0, found -1"},
        Refusal{R"("max_tokens":2.5)", "max_tokens: expected an integer of at least 0, found 2.5"},
        Refusal{R"("max_tokens":"7")", "max_tokens: expected an integer of at least 0, found \"7\""},
        Refusal{R"("max_tokens":2147483648)", "max_tokens: expected an integer of at least 0, found 2147483648"},
        Refusal{R"("max_tokens":3,"min_tokens":4)", "min_tokens: expected at most 3, the limit of tokens, found 4"},
        Refusal{R"("stop":"")", "stop: expected a string of 1 to 256 characters, found an empty one"},
        Refusal{R"("stop":[""])", "stop[0]: expected a string of 1 to 256 characters, found an empty one"},
        Refusal{R"("stop":["a",5])", "stop[1]: expected a string of 1 to 256 characters, found 5"},
        Refusal{R"("stop":[null])", "stop[0]: expected a string of 1 to 256 characters, found null"},
        Refusal{R"("stop":["","","","","","","","","","","","","","","","",""])",
                "stop: expected an array of at most 16 of them, found one of 17 items"},
        Refusal{R"("stop_token_ids":[1,151669])",
                "stop_token_ids[1]: expected a token id from 0 to 151668, found 151669"},
        Refusal{R"("stop_token_ids":7)", "stop_token_ids: expected an array of at most 128 items, found 7"},
        Refusal{R"("ignore_eos":1)", "ignore_eos: expected true or false, found 1"},
        Refusal{R"("stream":"true")", "stream: expected true or false, found \"true\""},
        Refusal{R"("stream_options":true)", "stream_options: expected an object, found true"},
        Refusal{R"("stream_options":{"include_usage":0})",
                "stream_options.include_usage: expected true or false, found 0"},
        Refusal{R"("priority":2147483648)",
                "priority: expected an integer from -2147483648 to 2147483647, found 2147483648"},
        Refusal{R"("cache_salt":"")", "cache_salt: expected a string of 1 to 256 characters, found an empty one"},
        Refusal{R"("user":5)", "user: expected a string, found 5"},
        Refusal{R"("metadata":{"a":5})", "metadata.a: expected a string of at most 512 characters, found 5"},
        Refusal{R"("model":["a"])", "model: expected a string, found an array"}));

// Each key that is no token's, and each bias that is no number from -100 to 100: padding rows are never sampled.
INSTANTIATE_TEST_SUITE_P(
    LogitBias, OpenAiRange,
    ::testing::Values(
        Refusal{R"("logit_bias":{"999999":5})",
                "logit_bias.999999: expected a token id from 0 to 151668 as key, found \"999999\""},
        Refusal{R"("logit_bias":{"151800":100})",
                "logit_bias.151800: expected a token id from 0 to 151668 as key, found \"151800\""},
        Refusal{R"("logit_bias":{"151669":1})",
                "logit_bias.151669: expected a token id from 0 to 151668 as key, found \"151669\""},
        Refusal{R"("logit_bias":{"-1":5})", "logit_bias.-1: expected a token id from 0 to 151668 as key, found \"-1\""},
        Refusal{R"("logit_bias":{"abc":5})",
                "logit_bias.abc: expected a token id from 0 to 151668 as key, found \"abc\""},
        Refusal{R"("logit_bias":{"":5})", "logit_bias.: expected a token id from 0 to 151668 as key, found \"\""},
        Refusal{R"("logit_bias":{"042":5})",
                "logit_bias.042: expected a token id from 0 to 151668 as key, found \"042\""},
        Refusal{R"("logit_bias":{"4 ":5})", "logit_bias.4 : expected a token id from 0 to 151668 as key, found \"4 \""},
        Refusal{R"("logit_bias":{"4294967338":5})",
                "logit_bias.4294967338: expected a token id from 0 to 151668 as key, found \"4294967338\""},
        Refusal{R"("logit_bias":{"42":1e9})", "logit_bias.42: expected a number from -100 to 100, found 1e9"},
        Refusal{R"("logit_bias":{"42":null})", "logit_bias.42: expected a number from -100 to 100, found null"},
        Refusal{R"("logit_bias":{"42":"5"})", "logit_bias.42: expected a number from -100 to 100, found \"5\""},
        Refusal{R"("logit_bias":[1])", "logit_bias: expected an object of at most 1024 members, found an array"}));

TEST(OpenAiGeneration, IdsOfTheLastFourTokensAreRefusedWhereThereAreNone) {
  Defaults base;
  base.num_tokens = kFirstThinkToken;
  EXPECT_EQ(completion_verdict(with_prompt(R"("logit_bias":{"151664":1})"), base), "accepted");
  EXPECT_EQ(completion_verdict(with_prompt(R"("logit_bias":{"151665":1})"), base),
            "400 invalid_value logit_bias.151665 | logit_bias.151665: expected a token id from 0 to 151664 as key, "
            "found \"151665\"");
}

TEST(OpenAiGeneration, SeedsOf64BitsAreKeptWhole) {
  EXPECT_EQ(generation_of(R"("seed":-9)").seed, static_cast<uint64_t>(-9));
  EXPECT_EQ(generation_of(R"("seed":1099511627783)").seed, (uint64_t{1} << 40U) + 7);
  EXPECT_EQ(generation_of(R"("seed":18446744073709551615)").seed, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(generation_of(R"("seed":-9223372036854775808)").seed, uint64_t{1} << 63U);
}

TEST(OpenAiGeneration, AStopStringMayBeAlone) {
  EXPECT_THAT(generation_of(R"("stop":"END")").stop, ElementsAre("END"));
  EXPECT_THAT(generation_of(R"("stop":[])").stop, IsEmpty());
  EXPECT_THAT(generation_of(R"("stop":"\u0000")").stop, ElementsAre(std::string(1, '\0')));
  const std::string longest(256, 'x');
  EXPECT_THAT(generation_of(R"("stop":")" + longest + "\"").stop, ElementsAre(longest));
  EXPECT_THAT(field_verdict(R"("stop":")" + longest + "x\""), HasSubstr("found one of 257 characters"));
}

TEST(OpenAiGeneration, UnknownFieldsAreRefusedByName) {
  EXPECT_EQ(field_verdict(R"("temprature":1)"),
            "400 unknown_parameter temprature | temprature: unknown field; did you mean temperature?");
  EXPECT_EQ(field_verdict(R"("zzzzzzzzzzzzzz":null)"),
            "400 unknown_parameter zzzzzzzzzzzzzz | zzzzzzzzzzzzzz: unknown field");
  EXPECT_EQ(field_verdict(R"("stream_options":{"usage":true})"),
            "400 unknown_parameter stream_options.usage | stream_options.usage: unknown field");
  const std::string name(1'000'000, 'x');
  EXPECT_LT(field_verdict("\"" + name + "\":1").size(), 300U);
  const std::string wide = field_verdict(R"("äääääääääääääääääääääääääääääääääääääääääääääääääääääää":1)");
  EXPECT_TRUE(parse_json("\"" + wide + "\"").has_value());  // cut between characters
}

TEST(OpenAiGeneration, ALenientServerIgnoresUnknownFieldsButNotWrongOnes) {
  Defaults defaults;
  defaults.lenient = true;
  for (const char* fields : {R"("zzz":{"a":[1]})", R"("stream_options":{"usage":true},"n":2)"}) {
    EXPECT_EQ(completion_verdict(with_prompt(fields), defaults), "accepted");
    EXPECT_EQ(chat_verdict(with_messages(fields), defaults), "accepted");
  }
  EXPECT_EQ(completion_of(with_prompt(R"("zzz":1,"n":2)"), defaults).generation.n, 2);
  EXPECT_THAT(completion_verdict(with_prompt(R"("zzz":1,"n":0)"), defaults), StartsWith("400 invalid_value n"));
  EXPECT_THAT(completion_verdict(with_prompt(R"("best_of":2)"), defaults), StartsWith("400 unsupported_parameter"));
}

TEST(OpenAiGeneration, AModelThatIsNotServedIs404) {
  Defaults defaults;
  defaults.models = {"kipp-demo", "demo"};
  EXPECT_EQ(completion_verdict(with_prompt(R"("model":"demo")"), defaults), "accepted");
  EXPECT_EQ(completion_verdict(with_prompt(R"("n":1)"), defaults), "accepted");
  EXPECT_EQ(chat_verdict(with_messages(R"("model":"gpt-4o")"), defaults),
            "404 model_not_found model | model: expected kipp-demo or demo, found \"gpt-4o\"");
}

TEST(OpenAiGeneration, ChoicesOfOneRequestHaveALimit) {
  Defaults defaults;
  defaults.max_choices = 8;
  EXPECT_EQ(completion_verdict(R"({"prompt":["a","b"],"n":4})", defaults), "accepted");
  EXPECT_EQ(completion_verdict(R"({"prompt":["a","b"],"n":5})", defaults),
            "400 invalid_value n | n: expected at most 8 choices in one request, found 2 prompts of 5 each");
}

}  // namespace
}  // namespace kipp::openai
