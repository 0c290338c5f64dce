// The sampler as a whole: greedy, extremes, ties, seeds, errors.
#include "sampling/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>

namespace kipp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int32_t kVocab = 400;
constexpr int32_t kTokens = 390;

std::vector<float> random_logits(uint32_t seed, float step = 0.0F) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, 2.0F);
  std::vector<float> logits(kVocab);
  for (float& logit : logits) {
    logit = normal(random);
    logit = step > 0.0F ? std::round(logit / step) * step : logit;
  }
  std::fill(logits.begin() + kTokens, logits.end(), 1000.0F);  // padding rows that would always win
  return logits;
}

int32_t argmax(const std::vector<float>& logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.begin() + kTokens) - logits.begin());
}

SampleRequest request_of(const SamplingParams& params, uint64_t seed = 0, int32_t position = 0, int32_t choice = 0) {
  SampleRequest request;
  request.params = &params;
  request.seed = seed;
  request.position = position;
  request.choice = choice;
  return request;
}

int32_t sample(const std::vector<float>& logits, const SampleRequest& request) {
  const auto token = sample_token(logits, request, kTokens);
  EXPECT_TRUE(token.has_value()) << token.error().message;
  return token ? token->id : -1;
}

std::vector<int32_t> ids_at_positions(const std::vector<float>& logits, const SamplingParams& params, uint64_t seed,
                                      int32_t choice = 0, int32_t count = 64) {
  std::vector<int32_t> ids;
  for (int32_t position = 0; position < count; ++position) {
    ids.push_back(sample(logits, request_of(params, seed, position, choice)));
  }
  return ids;
}

SamplingParams random_params(std::mt19937& random) {
  std::uniform_real_distribution<float> unit(0.0F, 1.0F);
  SamplingParams params;
  params.temperature = unit(random) * 3.0F;
  params.top_k = static_cast<int32_t>(random() % 50);
  params.top_p = unit(random);
  params.min_p = unit(random);
  params.repetition_penalty = 0.5F + unit(random);
  params.presence_penalty = unit(random) * 4.0F - 2.0F;
  params.frequency_penalty = unit(random) * 4.0F - 2.0F;
  params.logit_bias = {{3, unit(random) * 5.0F}, {static_cast<int32_t>(4 + random() % 100), -kInf}};
  return params;
}

// The best id may lie anywhere in a large vocabulary; of equal ones the first is taken.
TEST(Sampler, TheShortWayFindsTheBestOfManyBlocks) {
  const SamplingParams plain{.temperature = 0.0F};
  constexpr int32_t kMany = 2500;  // two blocks of its search and a part of one
  for (const int32_t first : {0, 1, 1022, 1023, 1024, 2047, 2048, 2499}) {
    for (const int32_t second : {first, 1023, 1024, 2499}) {
      std::vector<float> logits(kMany + 20, -5.0F);
      std::fill(logits.begin() + kMany, logits.end(), 9.0F);
      logits[static_cast<size_t>(first)] = logits[static_cast<size_t>(second)] = -1.0F;
      EXPECT_EQ(sample_token(logits, request_of(plain), kMany)->id, std::min(first, second));
      logits[kMany - 1] = std::numeric_limits<float>::quiet_NaN();
      EXPECT_EQ(sample_token(logits, request_of(plain), kMany).error().code, ErrorCode::kNumerical);
    }
  }
}

// A greedy draw that nothing else is asked of takes the argmax at once. A bias of 0 on any id asks for the long way.
TEST(Sampler, TheShortWayToTheBestIsTheLongOne) {
  const SamplingParams plain{.temperature = 0.0F};
  SamplingParams processed = plain;
  processed.logit_bias = {{7, 0.0F}};
  for (uint32_t seed = 0; seed < 50; ++seed) {
    std::vector<float> logits = random_logits(seed, seed % 2 == 0 ? 1.0F : 0.0F);  // with ties, and without
    EXPECT_EQ(sample(logits, request_of(plain)), sample(logits, request_of(processed))) << seed;
  }
  std::vector<float> logits(kVocab, -3.0F);
  logits[300] = -0.0F;
  logits[200] = std::numeric_limits<float>::denorm_min();  // subnormals and zeros are one value: the first is taken
  logits[100] = -std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(sample(logits, request_of(plain)), 100);
  EXPECT_EQ(sample(logits, request_of(processed)), 100);
  logits.assign(kVocab, std::numeric_limits<float>::lowest());
  EXPECT_EQ(sample(logits, request_of(plain)), 0);
  logits[kTokens - 1] = kInf;
  EXPECT_EQ(sample_token(logits, request_of(plain), kTokens).error().code, ErrorCode::kNumerical);
}

// Each of these leaves exactly the best processed logit, whatever the other parameters say.
TEST(Sampler, EveryWayToBeGreedyAgrees) {
  std::mt19937 random(1);
  const std::vector<int32_t> prompt = {1, 2, 3, 3};
  const std::vector<int32_t> output = {3, 9, 9, 30};
  for (uint32_t round = 0; round < 200; ++round) {
    const std::vector<float> logits = random_logits(round, round % 2 == 0 ? 0.5F : 0.0F);
    SamplingParams params = random_params(random);
    SampleRequest request = request_of(params, round, static_cast<int32_t>(round));
    request.prompt_ids = prompt;
    request.output_ids = output;
    const auto with = [&](auto change) {
      SamplingParams changed = params;
      change(changed);
      request.params = &changed;
      return sample(logits, request);
    };
    const int32_t greedy = with([](SamplingParams& p) { p.temperature = 0.0F; });
    EXPECT_EQ(greedy, with([](SamplingParams& p) { p.top_k = 1; }));
    EXPECT_EQ(greedy, with([](SamplingParams& p) { p.top_p = 0.0F; }));
    EXPECT_EQ(greedy, with([](SamplingParams& p) { p.temperature = 1e-40F; }));
    EXPECT_EQ(greedy, with([](SamplingParams& p) { p.temperature = 1e-6F; }));
    EXPECT_EQ(greedy, with([](SamplingParams& p) { p.temperature = -0.0F; }));
  }
}

TEST(Sampler, GreedyIsTheArgmaxOverTokensWithTheLowestIdOfATie) {
  std::vector<float> logits = random_logits(7);
  SamplingParams params;
  params.temperature = 0.0F;
  EXPECT_EQ(sample(logits, request_of(params)), argmax(logits));
  logits[77] = logits[55] = logits[300] = 50.0F;
  EXPECT_EQ(sample(logits, request_of(params)), 55);
}

TEST(Sampler, GreedyIgnoresTheSeed) {
  const std::vector<float> logits = random_logits(8);
  SamplingParams params;
  params.temperature = 0.0F;
  params.top_k = 40;
  const int32_t first = sample(logits, request_of(params, 1));
  params.top_k = 0;
  params.top_p = 0.1F;
  EXPECT_EQ(sample(logits, request_of(params, 2)), first);
  EXPECT_EQ(first, argmax(logits));
}

TEST(Sampler, GreedyObeysBiasBansMaskAndPenalties) {
  std::vector<float> logits(kVocab, 0.0F);
  logits[10] = 5.0F;
  logits[11] = 4.0F;
  logits[12] = 3.0F;
  SamplingParams params;
  params.temperature = 0.0F;
  params.logit_bias = {{10, -kInf}};
  EXPECT_EQ(sample(logits, request_of(params)), 11);
  params.logit_bias = {{12, 2.5F}};
  EXPECT_EQ(sample(logits, request_of(params)), 12);
  params.logit_bias.clear();
  params.presence_penalty = 2.0F;
  const std::vector<int32_t> output = {10};
  SampleRequest request = request_of(params);
  request.output_ids = output;
  EXPECT_EQ(sample(logits, request), 11);
  std::vector<uint32_t> mask(13, 0U);
  mask[0] = 1U << 12;
  request.mask = mask.data();
  EXPECT_EQ(sample(logits, request), 12);
}

TEST(Sampler, TiesAtACutKeepTheLowestIds) {
  const std::vector<float> logits(kVocab, 1.0F);
  SamplingParams params;
  params.top_k = 3;
  const std::vector<int32_t> by_k = ids_at_positions(logits, params, 5);
  EXPECT_EQ(std::set<int32_t>(by_k.begin(), by_k.end()), (std::set<int32_t>{0, 1, 2}));
  params.top_k = 0;
  params.top_p = 1.5F / 390.0F;
  const std::vector<int32_t> by_p = ids_at_positions(logits, params, 5);
  EXPECT_EQ(std::set<int32_t>(by_p.begin(), by_p.end()), (std::set<int32_t>{0, 1}));
}

// Probabilities 0.5, 0.25, 0.125, …: what each cut keeps is known exactly.
TEST(Sampler, CutsKeepWhatTheyShould) {
  std::vector<float> logits(kVocab, -1000.0F);
  for (size_t i = 0; i < 8; ++i) {
    logits[20 - i] = -static_cast<float>(i) * 0.693147182F;
  }
  const auto kept = [&](auto change) {
    SamplingParams params;
    change(params);
    const std::vector<int32_t> ids = ids_at_positions(logits, params, 99, 0, 4'000);
    return std::set<int32_t>(ids.begin(), ids.end());
  };
  using Ids = std::set<int32_t>;
  EXPECT_EQ(kept([](SamplingParams& p) { p.top_p = 0.5F; }), (Ids{20}));
  EXPECT_EQ(kept([](SamplingParams& p) { p.top_p = 0.51F; }), (Ids{20, 19}));
  EXPECT_EQ(kept([](SamplingParams& p) { p.top_p = 0.8F; }), (Ids{20, 19, 18}));
  EXPECT_EQ(kept([](SamplingParams& p) { p.top_k = 2; }), (Ids{20, 19}));
  EXPECT_EQ(kept([](SamplingParams& p) { p.min_p = 1.0F; }), (Ids{20}));
  EXPECT_EQ(kept([](SamplingParams& p) { p.min_p = 0.2F; }), (Ids{20, 19, 18}));
  // top_p works on what top_k left: 0.5 / 0.875 = 0.57, so 0.6 takes two, while without top_k 0.5 + 0.25 are needed
  // too.
  EXPECT_EQ(kept([](SamplingParams& p) { p.top_k = 3, p.top_p = 0.56F; }), (Ids{20}));
  EXPECT_EQ(kept([](SamplingParams& p) { p.top_k = 3, p.top_p = 0.6F; }), (Ids{20, 19}));
  // Temperature comes before the cuts: at 0.5 the shares are 0.75, 0.19, …
  EXPECT_EQ(kept([](SamplingParams& p) { p.temperature = 0.5F, p.top_p = 0.74F; }), (Ids{20}));
}

TEST(Sampler, SeedsRepeatAndChoicesAndPositionsDiffer) {
  const std::vector<float> logits = random_logits(12);
  const SamplingParams params;
  const std::vector<int32_t> first = ids_at_positions(logits, params, 77);
  EXPECT_EQ(ids_at_positions(logits, params, 77), first);
  EXPECT_NE(ids_at_positions(logits, params, 78), first);
  EXPECT_NE(ids_at_positions(logits, params, 77, 1), first);
  EXPECT_EQ(ids_at_positions(logits, params, 77, 1), ids_at_positions(logits, params, 77, 1));
  EXPECT_GT(std::set<int32_t>(first.begin(), first.end()).size(), 20U);
}

TEST(Sampler, UsesAll64BitsOfTheSeed) {
  const std::vector<float> logits = random_logits(13);
  const SamplingParams params;
  const std::vector<int32_t> low = ids_at_positions(logits, params, 7);
  EXPECT_NE(ids_at_positions(logits, params, (1ULL << 40) + 7), low);
  EXPECT_NE(ids_at_positions(logits, params, 1ULL << 63 | 7), low);
  EXPECT_NE(ids_at_positions(logits, params, static_cast<uint64_t>(-9)), ids_at_positions(logits, params, 9));
}

// Recorded from this implementation and confirmed by a separate one in Python (doubles, a sorted list): a change of the
// algorithm, or a machine that computes otherwise, shows here.
TEST(Sampler, DrawsTheRecordedIds) {
  std::vector<float> logits(kVocab);
  for (size_t id = 0; id < logits.size(); ++id) {
    logits[id] = static_cast<float>((id * 7'919) % 61) * 0.125F;
  }
  SamplingParams params;
  EXPECT_THAT(ids_at_positions(logits, params, 1234, 0, 8), ElementsAre(333, 45, 383, 51, 355, 78, 261, 168));
  params.temperature = 0.6F;
  params.top_k = 20;
  params.top_p = 0.9F;
  EXPECT_THAT(ids_at_positions(logits, params, (1ULL << 40) + 7, 2, 8),
              ElementsAre(50, 100, 161, 111, 150, 161, 50, 344));
}

TEST(Sampler, NeverDrawsAnExcludedToken) {
  const std::vector<float> logits = random_logits(15);
  SamplingParams params;
  params.temperature = 100.0F;
  std::vector<uint32_t> mask(13, 0x55555555U);
  for (int32_t id = 0; id < 100; ++id) {
    params.logit_bias.emplace_back(id, -kInf);
  }
  for (int32_t position = 0; position < 2'000; ++position) {
    SampleRequest request = request_of(params, 3, position);
    request.mask = mask.data();
    const int32_t id = sample(logits, request);
    ASSERT_GE(id, 100);
    ASSERT_LT(id, kTokens);
    ASSERT_EQ(id % 2, 0);
  }
}

TEST(Sampler, OneTokenLeftIsTaken) {
  const std::vector<float> logits = random_logits(16);
  SamplingParams params;
  for (int32_t id = 0; id < kTokens; ++id) {
    if (id != 211) {
      params.logit_bias.emplace_back(id, -kInf);
    }
  }
  for (const float temperature : {0.0F, 1e-40F, 1.0F, 3e38F}) {
    params.temperature = temperature;
    EXPECT_EQ(sample(logits, request_of(params, 9)), 211);
  }
  params.logit_bias.emplace_back(211, -kInf);
  const auto nothing_left = sample_token(logits, request_of(params), kTokens);
  ASSERT_FALSE(nothing_left.has_value());
  EXPECT_EQ(nothing_left.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(nothing_left.error().message, HasSubstr("every token is excluded"));
}

TEST(Sampler, LogprobsAreThoseOfTheRawLogits) {
  const std::vector<float> logits = random_logits(17);
  SamplingParams params;
  params.temperature = 0.3F;
  params.top_k = 5;
  params.logit_bias = {{argmax(logits), -kInf}, {40, 20.0F}};
  SampleRequest request = request_of(params, 4);
  request.num_logprobs = 3;
  const auto biased = sample_token(logits, request, kTokens);
  ASSERT_TRUE(biased.has_value());
  EXPECT_EQ(biased->id, 40);
  const SamplingParams plain;
  request.params = &plain;
  const auto raw = sample_token(logits, request, kTokens);
  ASSERT_TRUE(raw.has_value());
  EXPECT_EQ(biased->top_logprobs, raw->top_logprobs);
  ASSERT_EQ(raw->top_logprobs.size(), 3U);
  EXPECT_EQ(raw->top_logprobs[0].first, argmax(logits));
  EXPECT_LT(biased->logprob, raw->top_logprobs[2].second);
  request.num_logprobs = 0;
  EXPECT_TRUE(sample_token(logits, request, kTokens)->top_logprobs.empty());
  EXPECT_LT(sample_token(logits, request, kTokens)->logprob, 0.0F);
}

TEST(Sampler, RefusesLogitsThatAreNotFinite) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), kInf, -kInf}) {
    std::vector<float> logits = random_logits(18);
    logits[33] = bad;
    SamplingParams params;
    params.logit_bias = {{33, -kInf}};  // a ban does not hide a broken forward pass
    const auto token = sample_token(logits, request_of(params), kTokens);
    ASSERT_FALSE(token.has_value());
    EXPECT_EQ(token.error().code, ErrorCode::kNumerical);
    EXPECT_THAT(token.error().message, HasSubstr("id 33"));
  }
}

TEST(Sampler, IgnoresPaddingRowsAltogether) {
  std::vector<float> logits = random_logits(19);
  std::fill(logits.begin() + kTokens, logits.end(), std::numeric_limits<float>::quiet_NaN());
  const SamplingParams params;
  EXPECT_LT(sample(logits, request_of(params)), kTokens);
}

TEST(Sampler, RefusesBrokenRequests) {
  const std::vector<float> logits = random_logits(20);
  const SamplingParams params;
  const auto message_of = [&](auto change, int32_t num_tokens = kTokens) {
    SampleRequest request = request_of(params);
    change(request);
    const auto token = sample_token(logits, request, num_tokens);
    EXPECT_FALSE(token.has_value());
    return token ? std::string() : token.error().message;
  };
  EXPECT_THAT(message_of([](SampleRequest& r) { r.params = nullptr; }), HasSubstr("parameters"));
  EXPECT_THAT(message_of([](SampleRequest& r) { r.position = -1; }), HasSubstr("position"));
  EXPECT_THAT(message_of([](SampleRequest& r) { r.choice = -1; }), HasSubstr("choice"));
  EXPECT_THAT(message_of([](SampleRequest& r) { r.num_logprobs = 21; }), HasSubstr("21"));
  EXPECT_THAT(message_of([](SampleRequest&) {}, kVocab + 1), HasSubstr("401"));
  EXPECT_THAT(message_of([](SampleRequest&) {}, 0), HasSubstr("num_tokens"));
}

}  // namespace
}  // namespace kipp
