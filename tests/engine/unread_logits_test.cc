// Logits stay in the backend until somebody asks for them: they are those of their step whatever happened since, are
// fetched no more often than needed, and draws in the backend equal draws from them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "engine/evaluate.h"
#include "engine/recording_backend.h"
#include "engine/twin.h"
#include "kipp_checkpoints.h"
#include "sampling/sampler.h"

namespace kipp {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

// How often the backend is asked.
class FetchingTest : public testing::Test {
 protected:
  void SetUp() override {
    model_ = make_recorded_model();
    ASSERT_NE(model_, nullptr);
    backend_ = static_cast<RecordingBackend*>(model_->backend.get());
  }

  // Appends `count` tokens to each session in one call, all with the logits of their last token.
  Result<void> append(const std::vector<std::pair<Session::Impl*, int32_t>>& sessions) {
    std::vector<std::vector<int32_t>> tokens;
    std::vector<int32_t> last_rows;
    for (const auto& [session, count] : sessions) {
      tokens.emplace_back(static_cast<size_t>(count), 5);
      last_rows.push_back(count - 1);
    }
    std::vector<Evaluation> evaluations;
    for (size_t i = 0; i < sessions.size(); ++i) {
      evaluations.push_back({sessions[i].first, tokens[i], {&last_rows[i], 1}, RowClass::kPrompt});
    }
    return evaluate(*model_, evaluations, nullptr);
  }

  static void expect_logits(Session::Impl& session, StepId step, int32_t row) {
    ASSERT_TRUE(session.read_logits());
    EXPECT_THAT(session.logits, Each(RecordingBackend::value_of(step, row)));
    EXPECT_EQ(session.logits.size(), static_cast<size_t>(kVocabSize));
  }

  std::unique_ptr<Model::Impl> model_;
  RecordingBackend* backend_ = nullptr;  // the model's
};

TEST_F(FetchingTest, NothingIsFetchedUntilItIsAskedForAndThenOnce) {
  Session::Impl session(*model_);
  EXPECT_FALSE(session.has_logits());
  for (int32_t i = 0; i < 3; ++i) ASSERT_TRUE(append({{&session, 1}}));  // as decoding does
  EXPECT_TRUE(session.has_logits());
  EXPECT_THAT(backend_->fetched, IsEmpty());
  expect_logits(session, 3, 0);
  expect_logits(session, 3, 0);
  EXPECT_THAT(backend_->fetched, ElementsAre(Pair(3U, 0)));
}

TEST_F(FetchingTest, AnothersStepFetchesThemFirstAndOnce) {
  Session::Impl first(*model_);
  Session::Impl second(*model_);
  ASSERT_TRUE(append({{&first, 4}}));
  ASSERT_TRUE(append({{&second, 2}}));
  ASSERT_TRUE(append({{&second, 2}}));
  EXPECT_THAT(backend_->fetched, ElementsAre(Pair(1U, 0)));
  expect_logits(first, 1, 0);
  expect_logits(second, 3, 0);
}

TEST_F(FetchingTest, EverySessionOfAStepFindsItsRow) {
  Session::Impl first(*model_);
  Session::Impl second(*model_);
  Session::Impl third(*model_);
  ASSERT_TRUE(append({{&first, 3}, {&second, 1}, {&third, 7}}));
  expect_logits(third, 1, 2);
  ASSERT_TRUE(append({{&second, 1}}));  // fetches the first one's alone: its own are replaced, the third's are there
  EXPECT_THAT(backend_->fetched, ElementsAre(Pair(1U, 2), Pair(1U, 0)));
  expect_logits(first, 1, 0);
  expect_logits(second, 2, 0);
  expect_logits(third, 1, 2);
}

TEST_F(FetchingTest, RowsOfEarlierStepsOfACallAreFetchedAtOnce) {
  Session::Impl first(*model_);
  Session::Impl second(*model_);
  ASSERT_TRUE(append({{&first, 10}, {&second, 70}}));
  ASSERT_EQ(backend_->steps.size(), 2U);
  EXPECT_THAT(backend_->fetched, ElementsAre(Pair(1U, 0)));
  expect_logits(first, 1, 0);
  expect_logits(second, 2, 0);
}

TEST_F(FetchingTest, WhatWasClearedOrDestroyedIsNotFetched) {
  Session::Impl first(*model_);
  Session::Impl second(*model_);
  {
    Session::Impl gone(*model_);
    ASSERT_TRUE(append({{&first, 1}, {&gone, 1}}));
  }
  first.clear_logits();
  EXPECT_FALSE(first.has_logits());
  EXPECT_THAT(model_->unread, IsEmpty());
  ASSERT_TRUE(append({{&second, 1}}));
  EXPECT_THAT(backend_->fetched, IsEmpty());
}

TEST_F(FetchingTest, WhatCannotBeFetchedFailsTheStepThatWouldOverwriteIt) {
  Session::Impl first(*model_);
  Session::Impl second(*model_);
  ASSERT_TRUE(append({{&first, 1}}));
  backend_->fails_to_fetch = true;
  const auto failed = append({{&second, 1}});
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.error().message, HasSubstr("the device is gone"));
  EXPECT_EQ(backend_->steps.size(), 1U);
  EXPECT_TRUE(second.tokens.empty());
  EXPECT_EQ(model_->pool.num_free(), model_->pool.num_blocks() - 1);
  EXPECT_FALSE(first.has_logits());
  EXPECT_TRUE(append({{&second, 1}}));  // there is nothing left to fetch
}

TEST_F(FetchingTest, ARequestWithoutItsLastRowLeavesNoLogits) {
  Session::Impl session(*model_);
  ASSERT_TRUE(append({{&session, 1}}));
  const std::vector<int32_t> tokens = {1, 2, 3};
  const std::vector<int32_t> rows = {1};
  const Evaluation evaluation{&session, tokens, rows, RowClass::kPrompt};
  ASSERT_TRUE(evaluate(*model_, {&evaluation, 1}, nullptr));
  EXPECT_FALSE(session.has_logits());
  EXPECT_THAT(model_->unread, IsEmpty());
}

constexpr size_t kLength = 40;

// What they are, on the backend under test.
class UnreadLogitsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    tokens_ = draw_tokens(kLength, 1);
    expected_ = fresh_logits(tokens_);
  }
  void SetUp() override {
    ASSERT_EQ(expected_.size(), kLength);
    ModelOptions options = twin_options();
    options.num_blocks = 24;
    model_ = open_twin(options);
    ASSERT_NE(model_, nullptr);
  }

  Session new_session() { return *model_->new_session(); }
  Session session_of(size_t length) {
    Session session = new_session();
    EXPECT_TRUE(session.append(std::span(tokens_).first(length)));
    return session;
  }
  // A step of somebody else, whose logits go where those of the steps before were.
  void disturb() {
    Session other = new_session();
    ASSERT_TRUE(other.append(draw_tokens(3, ++seed_)));
  }
  static void expect_row(const Session& session, size_t row) {
    EXPECT_TRUE(same_bits(session.logits(), expected_[row])) << "row " << row;
  }

  static inline std::vector<int32_t> tokens_;
  static inline std::vector<Logits> expected_;  // [kLength] from one append
  std::unique_ptr<Model> model_;
  uint64_t seed_ = 100;
};

TEST_F(UnreadLogitsTest, TheyOutliveTheStepsOfOthers) {
  const Session first = session_of(20);
  const Session second = session_of(33);
  disturb();
  const Session third = session_of(7);
  expect_row(third, 6);
  expect_row(first, 19);
  expect_row(second, 32);
  disturb();
  expect_row(first, 19);
}

TEST_F(UnreadLogitsTest, ThoseOfABatchOutliveIt) {
  std::vector<Session> sessions;
  std::vector<Model::StepRequest> requests;
  const std::vector<int32_t> lengths = {12, 1, 40};
  std::vector<int32_t> last_rows;
  for (const int32_t length : lengths) {
    sessions.push_back(new_session());
    last_rows.push_back(length - 1);
  }
  for (size_t i = 0; i < lengths.size(); ++i) {
    requests.push_back({&sessions[i], std::span(tokens_).first(static_cast<size_t>(lengths[i])), {&last_rows[i], 1}});
  }
  ASSERT_TRUE(model_->step(requests));
  expect_row(sessions[1], 0);
  ASSERT_TRUE(sessions[1].append(std::span(tokens_).subspan(1, 1)));
  expect_row(sessions[2], 39);
  expect_row(sessions[0], 11);
  expect_row(sessions[1], 1);
}

TEST_F(UnreadLogitsTest, TruncatedOrResetTheyAreGoneAlsoAfterTheStepsOfOthers) {
  for (const bool reset : {false, true}) {
    Session session = session_of(20);
    if (reset) {
      session.reset();
    } else {
      ASSERT_TRUE(session.truncate(19));
    }
    disturb();
    EXPECT_TRUE(session.logits().empty());
    const SamplingParams greedy = with_temperature(0.0F);
    const auto token = session.sample(request_of(greedy));
    ASSERT_FALSE(token);
    EXPECT_EQ(token.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST_F(UnreadLogitsTest, TruncatingToTheLengthKeepsThem) {
  Session session = session_of(20);
  ASSERT_TRUE(session.truncate(20));
  disturb();
  expect_row(session, 19);
}

TEST_F(UnreadLogitsTest, TheyMoveWithTheirSession) {
  Session first = session_of(20);
  Session moved = std::move(first);
  disturb();
  expect_row(moved, 19);

  Session replaced = session_of(9);
  Session target = session_of(5);
  target = std::move(replaced);  // the one replaced has unread logits of the latest step, too
  disturb();
  expect_row(target, 8);
}

TEST_F(UnreadLogitsTest, AFailedAppendKeepsThem) {
  Session session = session_of(20);
  const std::vector<int32_t> bad = {kVocabSize};
  EXPECT_FALSE(session.append(bad));
  Session other = new_session();
  EXPECT_FALSE(other.append(draw_tokens(513, 3)));
  expect_row(session, 19);
}

void expect_same(const SampledToken& a, const SampledToken& b) {
  EXPECT_EQ(a.id, b.id);
  EXPECT_EQ(std::bit_cast<uint32_t>(a.logprob), std::bit_cast<uint32_t>(b.logprob));
  ASSERT_EQ(a.top_logprobs.size(), b.top_logprobs.size());
  for (size_t i = 0; i < a.top_logprobs.size(); ++i) {
    EXPECT_EQ(a.top_logprobs[i].first, b.top_logprobs[i].first);
    EXPECT_EQ(std::bit_cast<uint32_t>(a.top_logprobs[i].second), std::bit_cast<uint32_t>(b.top_logprobs[i].second));
  }
}

class DrawingTest : public UnreadLogitsTest {
 protected:
  // Requests that take every stage of the sampler.
  std::vector<SampleRequest> requests() const {
    std::vector<SampleRequest> requests;
    for (const SamplingParams& params : params_) {
      SampleRequest request = request_of(params, 0, 11 + requests.size());
      request.num_logprobs = static_cast<int32_t>(requests.size() % 4) * 5 - 5;  // -5 is none, as -1 is
      request.num_logprobs = std::max(request.num_logprobs, -1);
      request.choice = static_cast<int32_t>(requests.size());
      request.prompt_ids = std::span(tokens_).first(10);
      request.output_ids = std::span(tokens_).subspan(10, 10);
      if (requests.size() % 2 == 1) request.mask = mask_.data();
      requests.push_back(request);
    }
    return requests;
  }

  static SampledToken from_logits(std::span<const float> logits, SampleRequest request, int32_t position) {
    request.position = position;
    auto token = sample_token(logits, request, kNumTokens);
    if (!token) {
      ADD_FAILURE() << token.error().message;
      return {};
    }
    return *std::move(token);
  }

  const std::vector<uint32_t> mask_ = std::vector<uint32_t>((kVocabSize + 31) / 32, 0x5555AAAAU);
  const std::vector<SamplingParams> params_ = {
      {.temperature = 0.0F},
      {.temperature = 0.0F},
      {.temperature = 1.0F},
      {.temperature = 100.0F},
      {.temperature = 2.0F, .top_k = 40},
      {.temperature = 3.0F, .top_p = 0.7F},
      {.temperature = 0.8F, .top_k = 50, .top_p = 0.9F, .min_p = 0.01F},
      {.temperature = 5.0F, .repetition_penalty = 1.3F, .presence_penalty = 0.5F, .frequency_penalty = -0.5F},
      {.temperature = 1.5F, .logit_bias = {{7, 20.0F}, {9, -100.0F}}},
  };
};

TEST_F(DrawingTest, InTheBackendEqualsFromTheLogits) {
  Session session = session_of(19);
  for (const SampleRequest& request : requests()) {
    ASSERT_TRUE(session.append(std::span(tokens_).subspan(19, 1)));
    const auto in_backend = session.sample(request);
    ASSERT_TRUE(in_backend) << in_backend.error().message;
    expect_same(*in_backend, from_logits(expected_[19], request, 20));
    expect_row(session, 19);  // drawing leaves them as they were
    const auto from_read = session.sample(request);
    ASSERT_TRUE(from_read);
    expect_same(*in_backend, *from_read);
    ASSERT_TRUE(session.truncate(19));
  }
}

TEST_F(DrawingTest, AsOftenAsOneLikesAlsoAfterTheStepsOfOthers) {
  const Session session = session_of(20);
  for (int32_t round = 0; round < 2; ++round) {
    for (const SampleRequest& request : requests()) {
      const auto drawn = session.sample(request);
      ASSERT_TRUE(drawn) << drawn.error().message;
      expect_same(*drawn, from_logits(expected_[19], request, 20));
    }
    disturb();
  }
  expect_row(session, 19);
}

TEST_F(DrawingTest, AfterABatchEachSessionDrawsFromItsOwnRow) {
  Session first = new_session();
  Session second = new_session();
  const int32_t last[] = {11, 26};
  const std::vector step = {Model::StepRequest{&first, std::span(tokens_).first(12), {&last[0], 1}},
                            Model::StepRequest{&second, std::span(tokens_).first(27), {&last[1], 1}}};
  ASSERT_TRUE(model_->step(step));
  for (const SampleRequest& request : requests()) {
    const auto of_second = second.sample(request);
    const auto of_first = first.sample(request);
    ASSERT_TRUE(of_first && of_second);
    expect_same(*of_first, from_logits(expected_[11], request, 12));
    expect_same(*of_second, from_logits(expected_[26], request, 27));
  }
  ASSERT_TRUE(first.append(std::span(tokens_).subspan(12, 1)));
  expect_row(first, 12);
  expect_row(second, 26);
}

TEST_F(DrawingTest, ARefusedRequestDrawsNothing) {
  const Session session = session_of(20);
  const SamplingParams bad = with_temperature(-1.0F);
  const auto refused = session.sample(request_of(bad));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message, HasSubstr("temperature"));
  const SamplingParams hot = with_temperature(100.0F);
  const auto drawn = session.sample(request_of(hot));
  ASSERT_TRUE(drawn) << drawn.error().message;
  expect_same(*drawn, from_logits(expected_[19], request_of(hot), 20));
}

TEST_F(DrawingTest, LogitsThatAreNotFiniteAreAnErrorEveryTime) {
  Session session = session_of(31);
  KvBlock block;
  ASSERT_TRUE(model_->backend().read_block(session.block_table()[0], block));
  block.values[5 * 128 + 3] = 0x7FC0;  // one NaN in a key of the first layer
  ASSERT_TRUE(model_->backend().write_block(session.block_table()[0], block));
  ASSERT_TRUE(session.append(std::span(tokens_).subspan(31, 1)));
  const SamplingParams greedy = with_temperature(0.0F);
  for (int32_t i = 0; i < 2; ++i) {  // in the backend, then from the logits
    const auto token = session.sample(request_of(greedy));
    ASSERT_FALSE(token);
    EXPECT_EQ(token.error().code, ErrorCode::kNumerical);
  }
}

}  // namespace
}  // namespace kipp
