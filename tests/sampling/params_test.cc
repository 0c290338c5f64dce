// Every field of SamplingParams: what is accepted, and that an error names field, range and value.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "kipp/sampling.h"

namespace kipp {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kTokens = 151669;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

using Change = std::function<void(SamplingParams&)>;

void expect_valid(const Change& change) {
  SamplingParams params;
  change(params);
  const auto result = validate(params, kTokens);
  EXPECT_TRUE(result.has_value()) << result.error().message;
}

void expect_refused(const Change& change, const char* field, const char* found) {
  SamplingParams params;
  change(params);
  const auto result = validate(params, kTokens);
  ASSERT_FALSE(result.has_value()) << field << " " << found;
  EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(result.error().message, HasSubstr(field));
  EXPECT_THAT(result.error().message, HasSubstr(found));
}

TEST(Validate, DefaultsChangeNothing) {
  const SamplingParams params;
  EXPECT_EQ(params.temperature, 1.0F);
  EXPECT_EQ(params.top_k, 0);
  EXPECT_EQ(params.top_p, 1.0F);
  EXPECT_EQ(params.min_p, 0.0F);
  EXPECT_EQ(params.repetition_penalty, 1.0F);
  EXPECT_EQ(params.presence_penalty, 0.0F);
  EXPECT_EQ(params.frequency_penalty, 0.0F);
  EXPECT_TRUE(params.logit_bias.empty());
  EXPECT_TRUE(validate(params, kTokens).has_value());
}

TEST(Validate, ZeroIsAValue) {
  expect_valid([](SamplingParams& p) { p.temperature = 0.0F; });
  expect_valid([](SamplingParams& p) { p.top_p = 0.0F; });
  expect_valid([](SamplingParams& p) { p.min_p = 0.0F; });
}

TEST(Validate, AcceptsExtremes) {
  expect_valid([](SamplingParams& p) { p.temperature = 1e-40F; });
  expect_valid([](SamplingParams& p) { p.temperature = std::numeric_limits<float>::max(); });
  expect_valid([](SamplingParams& p) { p.top_k = std::numeric_limits<int32_t>::max(); });
  expect_valid([](SamplingParams& p) { p.presence_penalty = -2.0F; });
  expect_valid([](SamplingParams& p) { p.logit_bias = {{0, 100.0F}, {kTokens - 1, -100.0F}, {7, -kInf}}; });
}

TEST(Validate, RefusesWhatIsOutOfRange) {
  expect_refused([](SamplingParams& p) { p.temperature = -0.5F; }, "temperature", "-0.5");
  expect_refused([](SamplingParams& p) { p.temperature = kNan; }, "temperature", "nan");
  expect_refused([](SamplingParams& p) { p.temperature = kInf; }, "temperature", "inf");
  expect_refused([](SamplingParams& p) { p.top_k = -1; }, "top_k", "-1");
  expect_refused([](SamplingParams& p) { p.top_p = 1.5F; }, "top_p", "1.5");
  expect_refused([](SamplingParams& p) { p.top_p = -0.5F; }, "top_p", "-0.5");
  expect_refused([](SamplingParams& p) { p.top_p = kNan; }, "top_p", "nan");
  expect_refused([](SamplingParams& p) { p.min_p = 1.5F; }, "min_p", "1.5");
  expect_refused([](SamplingParams& p) { p.min_p = kNan; }, "min_p", "nan");
  expect_refused([](SamplingParams& p) { p.repetition_penalty = 0.0F; }, "repetition_penalty", "found 0");
  expect_refused([](SamplingParams& p) { p.repetition_penalty = kInf; }, "repetition_penalty", "inf");
  expect_refused([](SamplingParams& p) { p.presence_penalty = 2.5F; }, "presence_penalty", "2.5");
  expect_refused([](SamplingParams& p) { p.frequency_penalty = kNan; }, "frequency_penalty", "nan");
}

TEST(Validate, RefusesImpossibleBiases) {
  expect_refused([](SamplingParams& p) { p.logit_bias = {{999'999, 5.0F}}; }, "logit_bias", "999999");
  expect_refused([](SamplingParams& p) { p.logit_bias = {{-1, 5.0F}}; }, "logit_bias", "-1");
  expect_refused([](SamplingParams& p) { p.logit_bias = {{kTokens, 5.0F}}; }, "logit_bias", "151669");
  expect_refused([](SamplingParams& p) { p.logit_bias = {{42, 1e9F}}; }, "id 42", "1000000000");
  expect_refused([](SamplingParams& p) { p.logit_bias = {{42, kInf}}; }, "id 42", "inf");
  expect_refused([](SamplingParams& p) { p.logit_bias = {{42, kNan}}; }, "id 42", "nan");
  expect_refused([](SamplingParams& p) { p.logit_bias = {{42, 1.0F}, {7, 1.0F}, {42, 2.0F}}; }, "id 42",
                 "more than once");
}

}  // namespace
}  // namespace kipp
