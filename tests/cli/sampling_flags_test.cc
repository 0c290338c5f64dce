// Which source of a sampling parameter wins: artifact, then flags, then the fields of a JSON line.
#include "cli/sampling_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "base/draw_seed.h"

namespace kipp::cli {
namespace {

SamplingChoices read(std::string_view text) {
  const auto object = parse_json(text);
  EXPECT_TRUE(object);
  auto choices = read_sampling_fields(*object);
  EXPECT_TRUE(choices) << text;
  return choices ? *choices : SamplingChoices{};
}

TEST(Sampling, DefaultsAreWhatTheArtifactRecords) {
  const SamplingParams nothing = recorded_sampling({});
  EXPECT_EQ(nothing.temperature, 1.0F);
  EXPECT_EQ(nothing.top_k, 0);
  EXPECT_EQ(nothing.top_p, 1.0F);
  const SamplingParams recorded = recorded_sampling({.temperature = 0.6F, .top_k = 20, .top_p = 0.95F});
  EXPECT_EQ(recorded.temperature, 0.6F);
  EXPECT_EQ(recorded.top_k, 20);
  EXPECT_EQ(recorded.top_p, 0.95F);
  EXPECT_EQ(recorded.min_p, 0.0F);
  EXPECT_EQ(recorded.repetition_penalty, 1.0F);
}

TEST(Sampling, LaterChoicesWinFieldByField) {
  SamplingParams params = recorded_sampling({.temperature = 0.6F, .top_k = 20, .top_p = 0.95F});
  SamplingChoices flags;
  flags.top_k = 5;
  flags.presence_penalty = 1.5F;
  flags.logit_bias = {{{1, 2.0F}}};
  apply(flags, params);
  apply(read(R"({"top_k": 7, "min_p": 0.25, "logit_bias": {"3": -4.5, "9": "-inf"}})"), params);
  EXPECT_EQ(params.temperature, 0.6F);
  EXPECT_EQ(params.top_k, 7);
  EXPECT_EQ(params.top_p, 0.95F);
  EXPECT_EQ(params.min_p, 0.25F);
  EXPECT_EQ(params.presence_penalty, 1.5F);
  ASSERT_EQ(params.logit_bias.size(), 2U);
  EXPECT_EQ(params.logit_bias[0], (std::pair<int32_t, float>{3, -4.5F}));
  EXPECT_EQ(params.logit_bias[1].first, 9);
  EXPECT_TRUE(std::isinf(params.logit_bias[1].second) && params.logit_bias[1].second < 0);
}

TEST(Sampling, GreedyOfALineBeatsTemperatureAndALineTemperatureBeatsTheGreedyFlag) {
  SamplingParams params;
  apply(read(R"({"greedy": true, "temperature": 0.8})"), params);
  EXPECT_EQ(params.temperature, 0.0F);
  apply(read(R"({"temperature": 0.8})"), params);
  EXPECT_EQ(params.temperature, 0.8F);
  apply(read(R"({"temperature": null, "greedy": false})"), params);
  EXPECT_EQ(params.temperature, 0.8F);
}

TEST(Sampling, ALineUndoesWhatTheFlagsSay) {
  SamplingChoices flags;
  flags.greedy = true;
  flags.temperature = 0.7F;
  flags.logit_bias = {{{1, 2.0F}}};
  const auto params_of = [&](std::string_view line) {
    SamplingParams params;
    apply(layered(flags, read(line)), params);
    return params;
  };
  EXPECT_EQ(params_of("{}").temperature, 0.0F);
  EXPECT_EQ(params_of(R"({"greedy": false})").temperature, 0.7F);
  EXPECT_EQ(params_of(R"({"temperature": 1.5})").temperature, 1.5F);
  EXPECT_EQ(params_of(R"({"temperature": 1.5, "greedy": true})").temperature, 0.0F);
  EXPECT_EQ(params_of("{}").logit_bias.size(), 1U);
  EXPECT_TRUE(params_of(R"({"logit_bias": {}})").logit_bias.empty());
}

TEST(Sampling, ManyBiasesAreReadInLinearTime) {
  std::string line = R"({"logit_bias": {)";
  for (int32_t id = 0; id < 151'669; ++id) {
    line += (id > 0 ? ", \"" : "\"") + std::to_string(id) + "\": -1.5";
  }
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(read(line + "}}").logit_bias->size(), 151'669U);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));  // a second; quadratic: over a minute
}

TEST(Sampling, FlagsAreCheckedBeforeAModelIsOpened) {
  SamplingChoices choices;
  EXPECT_TRUE(check_sampling(choices));
  choices.logit_bias = {{{151'800, 1.0F}}};
  const auto padding = check_sampling(choices);
  ASSERT_FALSE(padding);
  EXPECT_THAT(padding.error().message, testing::HasSubstr("151800"));
}

TEST(Sampling, SeedsAreDrawnAnew) {
  EXPECT_NE(draw_seed(), draw_seed());
}

TEST(Sampling, ABiasIsJudgedBeforeItIsRounded) {
  for (const std::string_view bias : {"-1e300", "1e300", "100.0000001", "-100.0000001", "\"inf\"", "true", "null"}) {
    const Json object = parse_json(fmt::format(R"({{"logit_bias": {{"5": {}}}}})", bias)).value();
    const auto choices = read_sampling_fields(object);
    ASSERT_FALSE(choices.has_value()) << bias;
    EXPECT_THAT(choices.error().message, ::testing::HasSubstr(R"(expected -100 to 100 or "-inf", found )")) << bias;
  }
}

}  // namespace
}  // namespace kipp::cli
