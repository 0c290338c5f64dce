// The host side of the device sampler: errors are the host sampler's, and what the tables for the device hold.
#include "backend/cuda/sample_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "cuda/sample_cases.h"
#include "sampling/sampler.h"

namespace kipp::cuda {
namespace {

using ::testing::ElementsAre;

constexpr int32_t kVocab = 400;
constexpr int32_t kTokens = 390;

template <typename T>
std::vector<T> table(const std::vector<std::byte>& bytes, size_t offset, size_t count) {
  std::vector<T> values(count);
  std::memcpy(values.data(), bytes.data() + offset, count * sizeof(T));
  return values;
}

std::vector<std::byte> written(const SampleRows& rows) {
  std::vector<std::byte> bytes(rows.layout().bytes);
  rows.write(bytes);
  return bytes;
}

void expect_hosts_error(const SampleRequest& request) {
  const std::vector<float> logits(kVocab, 0.0F);
  const SamplingParams good;
  const SampleRequest good_request{.params = &good};
  const Result<SampledToken> host = sample_token(logits, request, kTokens);
  ASSERT_FALSE(host.has_value());
  SampleRows rows(kVocab, kTokens);
  const Result<void> device = rows.assign(std::vector{good_request, request, good_request});
  ASSERT_FALSE(device.has_value()) << host.error().message;
  EXPECT_EQ(device.error().code, host.error().code);
  EXPECT_EQ(device.error().message, "row 1: " + host.error().message);
  EXPECT_FALSE(rows.needs().options);
  EXPECT_EQ(rows.layout().params, 0U);
}

TEST(SampleRows, ErrorsAreTheHostsAndNameTheRow) {
  const std::vector<int32_t> bad_ids = {3, kVocab};
  const std::vector<uint32_t> nothing(13, 0U);
  expect_hosts_error({});
  for (const SamplingParams& params : {SamplingParams{.temperature = -1.0F},
                                       {.top_k = -1},
                                       {.top_p = 1.5F},
                                       {.min_p = kNan},
                                       {.repetition_penalty = 0.0F},
                                       {.logit_bias = {{kTokens, 1.0F}}},
                                       {.logit_bias = {{3, 1.0F}, {3, 1.0F}}}}) {
    expect_hosts_error({.params = &params});
  }
  const SamplingParams plain;
  const SamplingParams penalty{.presence_penalty = 1.0F};
  expect_hosts_error({.params = &plain, .position = -1});
  expect_hosts_error({.params = &plain, .num_logprobs = 21});
  expect_hosts_error({.params = &plain, .mask = nothing.data()});
  expect_hosts_error({.params = &penalty, .prompt_ids = bad_ids});
  expect_hosts_error({.params = &penalty, .output_ids = bad_ids});
}

TEST(SampleRows, MaskAndBansThatLeaveNothingAreAnErrorAndOneIdIsNot) {
  std::vector<uint32_t> mask(13, 0U);
  mask[12] = 0xFFFFFFFFU << 6;  // ids from 390 on: without a token
  SamplingParams params;
  expect_hosts_error({.params = &params, .mask = mask.data()});
  mask[1] = 0b110;
  params.logit_bias = {{33, -kInfinity}, {5, -kInfinity}, {34, -kInfinity}};
  expect_hosts_error({.params = &params, .mask = mask.data()});
  mask[1] = 0b1110;
  SampleRows rows(kVocab, kTokens);
  EXPECT_TRUE(rows.assign(std::vector{SampleRequest{.params = &params, .mask = mask.data()}}).has_value());
}

TEST(SampleRows, EditsAreSortedCountedAndOfTheirRowOnly) {
  const std::vector<int32_t> prompt = {300, 2, 2, 395};
  const std::vector<int32_t> output = {70, 2, 70, 64};
  const SamplingParams both{
      .repetition_penalty = 1.5F, .frequency_penalty = 0.5F, .logit_bias = {{70, 3.0F}, {1, -kInfinity}}};
  const SamplingParams counted{.presence_penalty = 0.5F};
  const SamplingParams repeated{.repetition_penalty = 1.5F};
  const SamplingParams none;
  std::vector<SampleRequest> requests;
  for (const SamplingParams* params : {&both, &counted, &repeated, &none}) {
    requests.push_back({.params = params, .prompt_ids = prompt, .output_ids = output});
  }
  SampleRows rows(kVocab, kTokens);
  ASSERT_TRUE(rows.assign(requests).has_value());
  const std::vector<std::byte> bytes = written(rows);
  const auto params = table<SampleParams>(bytes, rows.layout().params, 4);
  const auto edits = table<LogitEdit>(bytes, rows.layout().edits, 12);
  const auto of_row = [&](size_t r) {
    std::vector<std::array<int32_t, 3>> found;
    for (int32_t i = 0; i < params[r].num_edits; ++i) {
      const LogitEdit& edit = edits[static_cast<size_t>(params[r].first_edit + i)];
      found.push_back({edit.id, edit.output_count, edit.repeated});
    }
    return found;
  };
  using Edit = std::array<int32_t, 3>;
  EXPECT_THAT(of_row(0), ElementsAre(Edit{1, 0, 0}, Edit{2, 1, 1}, Edit{64, 1, 1}, Edit{70, 2, 1}, Edit{300, 0, 1}));
  EXPECT_EQ(edits[0].bias, -kInfinity);
  EXPECT_EQ(edits[3].bias, 3.0F);
  EXPECT_THAT(of_row(1), ElementsAre(Edit{2, 1, 0}, Edit{64, 1, 0}, Edit{70, 2, 0}));
  EXPECT_THAT(of_row(2), ElementsAre(Edit{2, 0, 1}, Edit{64, 0, 1}, Edit{70, 0, 1}, Edit{300, 0, 1}));
  EXPECT_THAT(of_row(3), ElementsAre());
  EXPECT_EQ(edits[5].bias, 0.0F);  // row 1's first: nothing of row 0 is left
  EXPECT_EQ(params[3].edited, 0);
}

TEST(SampleRows, NeedsAreTheUnionAndGreedyNeedsNothing) {
  const SamplingParams greedy{.temperature = 0.0F, .top_k = 3, .top_p = 0.5F, .min_p = 0.5F};
  const SamplingParams top_k{.top_k = 3};
  const SamplingParams top_p{.top_p = 0.5F};
  SampleRows rows(kVocab, kTokens);
  ASSERT_TRUE(rows.assign(std::vector(3, SampleRequest{.params = &greedy})).has_value());
  EXPECT_FALSE(rows.needs().options);
  ASSERT_TRUE(rows.assign(std::vector{SampleRequest{.params = &greedy}, SampleRequest{.params = &top_k}}).has_value());
  EXPECT_TRUE(rows.needs().options && rows.needs().cuts && rows.needs().draws);
  EXPECT_FALSE(rows.needs().cuts_by_weight || rows.needs().logprobs);
  ASSERT_TRUE(
      rows.assign(std::vector{SampleRequest{.params = &top_p}, SampleRequest{.params = &greedy, .num_logprobs = 0}})
          .has_value());
  EXPECT_TRUE(rows.needs().cuts_by_weight && rows.needs().logprobs);
  EXPECT_FALSE(rows.needs().top_logprobs);
}

TEST(SampleRows, WritesMasksBehindEachOther) {
  std::vector<uint32_t> first(13, 1U);
  std::vector<uint32_t> second(13, 2U);
  const SamplingParams params;
  SampleRows rows(kVocab, kTokens);
  ASSERT_TRUE(
      rows.assign(std::vector{SampleRequest{.params = &params, .mask = first.data()}, SampleRequest{.params = &params},
                              SampleRequest{.params = &params, .mask = second.data()}})
          .has_value());
  const std::vector<std::byte> bytes = written(rows);
  const auto from = table<SampleParams>(bytes, rows.layout().params, 3);
  EXPECT_THAT((std::array{from[0].mask, from[1].mask, from[2].mask}), ElementsAre(0, kNoMask, 1));
  const auto masks = table<uint32_t>(bytes, rows.layout().masks, 26);
  EXPECT_EQ(masks[0], 1U);
  EXPECT_EQ(masks[13], 2U);
  EXPECT_EQ(masks[25], 2U);
}

}  // namespace
}  // namespace kipp::cuda
