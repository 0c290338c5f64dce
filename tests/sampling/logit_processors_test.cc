// Each processor alone, and that they run in the documented order.
#include "sampling/logit_processors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "sampling/sampling_math.h"

namespace kipp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int32_t kTokens = 5;
const std::vector<float> kLogits = {2.0F, -1.0F, 0.0F, 4.0F, 1.0F, 99.0F, kInf};  // the last two are padding rows

std::vector<float> process(const SamplingParams& params, std::vector<int32_t> prompt = {},
                           std::vector<int32_t> output = {}, const uint32_t* mask = nullptr,
                           const std::vector<float>& logits = kLogits) {
  SampleRequest request;
  request.params = &params;
  request.prompt_ids = prompt;
  request.output_ids = output;
  request.mask = mask;
  std::vector<float> values(kTokens);
  EXPECT_TRUE(process_logits(logits, request, values).has_value());
  return values;
}

TEST(ProcessLogits, DropsPaddingRowsAndChangesNothingByDefault) {
  EXPECT_THAT(process({}, {0, 1}, {3, 3}), ElementsAre(2.0F, -1.0F, 0.0F, 4.0F, 1.0F));
}

TEST(ProcessLogits, AddsBiasAndBans) {
  SamplingParams params;
  params.logit_bias = {{3, -100.0F}, {0, 0.5F}, {4, -kInf}, {2, 100.0F}};
  const std::vector<float> expected = {2.5F, -1.0F, 100.0F, -96.0F, -kInf};
  EXPECT_EQ(process(params), expected);
  std::reverse(params.logit_bias.begin(), params.logit_bias.end());
  EXPECT_EQ(process(params), expected);
}

TEST(ProcessLogits, AppliesTheGrammarMask) {
  const uint32_t mask = 0b01010;
  EXPECT_THAT(process({}, {}, {}, &mask), ElementsAre(-kInf, -1.0F, -kInf, 4.0F, -kInf));
}

TEST(ProcessLogits, ABiasCannotLiftABanOrAMask) {
  SamplingParams params;
  params.logit_bias = {{0, 100.0F}, {3, -kInf}};
  const uint32_t mask = 0b11110;
  EXPECT_THAT(process(params, {}, {}, &mask), ElementsAre(-kInf, -1.0F, 0.0F, -kInf, 1.0F));
}

TEST(RepetitionPenalty, CoversPromptAndOutputOnceEach) {
  SamplingParams params;
  params.repetition_penalty = 2.0F;
  EXPECT_THAT(process(params, {0, 0, 0}, {1, 0}), ElementsAre(1.0F, -2.0F, 0.0F, 4.0F, 1.0F));
  EXPECT_THAT(process(params, {3, 5, 6}, {}), ElementsAre(2.0F, -1.0F, 0.0F, 2.0F, 1.0F));  // padding ids are harmless
}

TEST(RepetitionPenalty, BelowOneEncourages) {
  SamplingParams params;
  params.repetition_penalty = 0.5F;
  EXPECT_THAT(process(params, {0, 1}), ElementsAre(4.0F, -0.5F, 0.0F, 4.0F, 1.0F));
}

TEST(CountedPenalties, CoverTheOutputOnly) {
  SamplingParams params;
  params.presence_penalty = 0.5F;
  EXPECT_THAT(process(params, {3, 3}, {0, 0, 1}), ElementsAre(1.5F, -1.5F, 0.0F, 4.0F, 1.0F));
  params.presence_penalty = 0.0F;
  params.frequency_penalty = 0.25F;
  EXPECT_THAT(process(params, {3, 3}, {0, 0, 1}), ElementsAre(1.5F, -1.25F, 0.0F, 4.0F, 1.0F));
  params.presence_penalty = 1.0F;
  EXPECT_THAT(process(params, {3, 3}, {0, 0, 1}), ElementsAre(0.5F, -2.25F, 0.0F, 4.0F, 1.0F));
}

TEST(ProcessLogits, RunsBiasThenRepetitionThenCounts) {
  SamplingParams params;
  params.logit_bias = {{0, 6.0F}, {1, 3.0F}};
  params.repetition_penalty = 2.0F;
  params.frequency_penalty = 0.5F;
  // id 0: (2 + 6) / 2 - 0.5·2; id 1: the bias makes it positive first, (-1 + 3) / 2
  EXPECT_THAT(process(params, {1}, {0, 0}), ElementsAre(3.0F, 1.0F, 0.0F, 4.0F, 1.0F));
}

TEST(ProcessLogits, DoesNotDependOnTheOrderOfIds) {
  SamplingParams params;
  params.repetition_penalty = 1.3F;
  params.presence_penalty = 0.7F;
  params.frequency_penalty = 0.1F;
  EXPECT_EQ(process(params, {0, 1, 4}, {3, 0, 3, 2}), process(params, {4, 0, 1}, {2, 3, 3, 0}));
}

TEST(ProcessLogits, OverflowSaturatesAndStaysSampleable) {
  SamplingParams params;
  params.repetition_penalty = 1e-30F;
  const std::vector<float> huge = {1e30F, -1e30F, 0.0F, 1.0F, -1.0F};
  EXPECT_THAT(process(params, {0}, {}, nullptr, huge), ElementsAre(kMaxFinite, -1e30F, 0.0F, 1.0F, -1.0F));
  params.repetition_penalty = 1e30F;
  EXPECT_THAT(process(params, {1}, {}, nullptr, huge), ElementsAre(1e30F, -kMaxFinite, 0.0F, 1.0F, -1.0F));
}

TEST(ProcessLogits, RefusesIdsOutsideTheVocabulary) {
  SamplingParams params;
  params.presence_penalty = 1.0F;
  for (const int32_t bad : {-1, 7, 1 << 30}) {
    const std::vector<int32_t> ids = {0, bad};
    SampleRequest request;
    request.params = &params;
    request.output_ids = ids;
    std::vector<float> values(kTokens);
    const auto processed = process_logits(kLogits, request, values);
    ASSERT_FALSE(processed.has_value());
    EXPECT_EQ(processed.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(processed.error().message, HasSubstr("output_ids[1]"));
  }
}

}  // namespace
}  // namespace kipp
