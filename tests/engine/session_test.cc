// Sessions: chunks, truncation, capacity, several on one pool; every way to the same tokens gives the same bits.
#include <gmock/gmock.h>

#include <algorithm>
#include <utility>

#include "engine/twin.h"
#include "kipp_checkpoints.h"
#include "sampling/sampler.h"

namespace kipp {
namespace {

using testing::HasSubstr;

constexpr size_t kLength = 75;  // three blocks

class SessionTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    tokens_ = draw_tokens(kLength, 1);
    expected_ = fresh_logits(tokens_);
  }
  void SetUp() override {
    ASSERT_EQ(expected_.size(), kLength);
    model_ = open_twin();
    ASSERT_NE(model_, nullptr);
  }

  Session new_session() { return *model_->new_session(); }
  static std::span<const int32_t> part(size_t begin, size_t count) { return std::span(tokens_).subspan(begin, count); }
  static void expect_row(std::span<const float> logits, size_t row) {
    EXPECT_TRUE(same_bits(logits, expected_[row])) << "row " << row;
  }

  static inline std::vector<int32_t> tokens_;
  static inline std::vector<Logits> expected_;  // [kLength] from one append
  std::unique_ptr<Model> model_;
};

TEST_F(SessionTest, AFreshSessionIsEmpty) {
  const Session session = new_session();
  EXPECT_EQ(session.length(), 0);
  EXPECT_TRUE(session.logits().empty());
  EXPECT_TRUE(session.tokens().empty());
  EXPECT_TRUE(session.block_table().empty());
}

TEST_F(SessionTest, ChunksDoNotMatter) {
  for (const size_t chunk : {3U, 7U, 32U, 33U, 74U}) {  // single tokens: stateless_test.cc
    Session session = new_session();
    for (size_t begin = 0; begin < kLength; begin += chunk) {
      const size_t count = std::min(chunk, kLength - begin);
      ASSERT_TRUE(session.append(part(begin, count), begin % 2 == 1));  // nor does the row class, on the oracle
      expect_row(session.logits(), begin + count - 1);
    }
    EXPECT_TRUE(std::ranges::equal(session.tokens(), tokens_));
  }
}

TEST_F(SessionTest, AppendAllLogitsGivesEveryRow) {
  Session session = new_session();
  ASSERT_TRUE(session.append(part(0, 20)));
  const auto logits = session.append_all_logits(part(20, 15));
  ASSERT_TRUE(logits);
  ASSERT_EQ(logits->size(), 15U);
  for (size_t i = 0; i < 15; ++i) {
    expect_row((*logits)[i], 20 + i);
  }
  expect_row(session.logits(), 34);
}

TEST_F(SessionTest, TruncatingForgetsExactlyWhatIsBeyond) {
  Session session = new_session();
  ASSERT_TRUE(session.append(draw_tokens(100, 2)));
  for (const int32_t length : {70, 64, 33, 32, 31, 1, 0}) {
    ASSERT_TRUE(session.truncate(length));
    EXPECT_EQ(session.length(), length);
    EXPECT_TRUE(session.logits().empty());
    EXPECT_EQ(session.block_table().size(), static_cast<size_t>((length + 31) / 32));
  }
  ASSERT_TRUE(session.append(tokens_));
  for (const size_t length : {64U, 40U, 32U, 5U}) {  // resumed after a cut equals fresh
    ASSERT_TRUE(session.truncate(static_cast<int32_t>(length)));
    ASSERT_TRUE(session.append(draw_tokens(10, length)));
    ASSERT_TRUE(session.truncate(static_cast<int32_t>(length)));
    ASSERT_TRUE(session.append(part(length, 8)));
    expect_row(session.logits(), length + 7);
  }
}

TEST_F(SessionTest, TruncatingToTheLengthKeepsTheLogits) {
  Session session = new_session();
  ASSERT_TRUE(session.append(part(0, 9)));
  ASSERT_TRUE(session.truncate(9));
  expect_row(session.logits(), 8);
}

TEST_F(SessionTest, TruncatingBeyondTheLengthIsRefused) {
  Session session = new_session();
  ASSERT_TRUE(session.append(part(0, 9)));
  for (const int32_t length : {-1, 10}) {
    const auto result = session.truncate(length);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
  }
  expect_row(session.logits(), 8);
}

TEST_F(SessionTest, ResetGivesEveryBlockBack) {
  Session session = new_session();
  ASSERT_TRUE(session.append(draw_tokens(100, 3)));
  EXPECT_EQ(model_->num_free_blocks(), 12);
  session.reset();
  EXPECT_EQ(model_->num_free_blocks(), 16);
  ASSERT_TRUE(session.append(part(0, 40)));
  expect_row(session.logits(), 39);
}

TEST_F(SessionTest, BadTokensLeaveTheSessionAsItWas) {
  Session session = new_session();
  ASSERT_TRUE(session.append(part(0, 31)));
  const std::vector<std::pair<std::vector<int32_t>, const char*>> bad = {
      {{}, "at least one token"},
      {{5, 6, -1}, "token 2: expected an id in [0, 151936), found -1"},
      {{5, kVocabSize}, "token 1: expected an id in [0, 151936), found 151936"}};
  for (const auto& [ids, message] : bad) {
    const auto result = session.append(ids);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(result.error().message, HasSubstr(message));
  }
  EXPECT_EQ(session.length(), 31);
  EXPECT_EQ(session.block_table().size(), 1U);
  expect_row(session.logits(), 30);
  ASSERT_TRUE(session.append(part(31, 4)));
  expect_row(session.logits(), 34);
}

TEST_F(SessionTest, TheContextIsALimitWithBothNumbers) {
  ModelOptions options = twin_options();
  options.context = 40;
  options.num_blocks = 10;
  const auto model = open_twin(options);
  Session session = *model->new_session();
  ASSERT_TRUE(session.append(part(0, 38)));
  const auto result = session.append(part(38, 3));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kCapacity);
  EXPECT_THAT(result.error().message, HasSubstr("3 tokens after 38 already held exceed the context of 40 by 1"));
  expect_row(session.logits(), 37);
  ASSERT_TRUE(session.append(part(38, 2)));
  expect_row(session.logits(), 39);
}

TEST_F(SessionTest, AnEmptyPoolIsAnErrorUntilAnotherSessionLeaves) {
  ModelOptions options = twin_options();
  options.num_blocks = 3;
  const auto model = open_twin(options);
  Session session = *model->new_session();
  ASSERT_TRUE(session.append(part(0, 32)));
  {
    Session other = *model->new_session();
    ASSERT_TRUE(other.append(draw_tokens(64, 4)));
    const auto result = session.append(part(32, 1));
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::kCapacity);
    EXPECT_THAT(result.error().message, HasSubstr("need 1 more KV blocks"));
    expect_row(session.logits(), 31);
  }
  EXPECT_EQ(model->num_free_blocks(), 2);
  ASSERT_TRUE(session.append(part(32, 9)));
  expect_row(session.logits(), 40);
}

TEST_F(SessionTest, SessionsOnOnePoolDoNotSeeEachOther) {
  std::vector<Session> sessions;
  for (size_t s = 0; s < 3; ++s) {
    sessions.push_back(new_session());
  }
  for (size_t i = 0; i < 36; ++i) {  // interleaved, so that their blocks are too
    for (size_t s = 0; s < 3; ++s) {
      ASSERT_TRUE(sessions[s].append(s == 1 ? part(i, 1) : draw_tokens(1, 100 * s + i)));
    }
  }
  EXPECT_NE(sessions[1].block_table()[1], sessions[1].block_table()[0] + 1);
  expect_row(sessions[1].logits(), 35);
}

TEST_F(SessionTest, MovesCarryTheSequence) {
  Session a = new_session();
  ASSERT_TRUE(a.append(part(0, 20)));
  Session b = std::move(a);
  ASSERT_TRUE(b.append(part(20, 20)));
  Session c = new_session();
  ASSERT_TRUE(c.append(draw_tokens(50, 5)));
  EXPECT_EQ(model_->num_free_blocks(), 12);
  c = std::move(b);
  EXPECT_EQ(model_->num_free_blocks(), 14);
  expect_row(c.logits(), 39);
  ASSERT_TRUE(c.append(part(40, 1)));
  expect_row(c.logits(), 40);
}

TEST_F(SessionTest, SamplesGreedilyFromItsLogits) {
  Session session = new_session();
  const SamplingParams greedy = with_temperature(0.0F);
  const auto nothing = session.sample(request_of(greedy));
  ASSERT_FALSE(nothing);
  EXPECT_EQ(nothing.error().code, ErrorCode::kInvalidArgument);
  ASSERT_TRUE(session.append(part(0, 12)));
  const auto token = session.sample(request_of(greedy));
  ASSERT_TRUE(token) << token.error().message;
  const auto best = std::max_element(expected_[11].begin(), expected_[11].begin() + kNumTokens);
  EXPECT_EQ(token->id, best - expected_[11].begin());
}

TEST_F(SessionTest, TheDrawDependsOnThePositionAlone) {
  const SamplingParams hot = with_temperature(5.0F);
  Session whole = new_session();
  ASSERT_TRUE(whole.append(part(0, 33)));
  Session pieces = new_session();
  ASSERT_TRUE(pieces.append(part(0, 5)));
  ASSERT_TRUE(pieces.append(part(5, 28)));
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const auto a = whole.sample(request_of(hot, 1, seed));
    const auto b = pieces.sample(request_of(hot, 999, seed));  // the session sets it itself
    ASSERT_TRUE(a && b);
    EXPECT_EQ(a->id, b->id);
  }
}

// Almost every token is as likely as the next: another position, or padding rows among the candidates, draw another id.
TEST_F(SessionTest, ADrawIsThatOfTheLogitsAtTheLengthOverTheGenuineTokens) {
  const SamplingParams hot = with_temperature(100.0F);
  Session session = new_session();
  for (const size_t length : {1U, 32U, 33U}) {
    const auto held = static_cast<size_t>(session.length());
    ASSERT_TRUE(session.append(part(held, length - held)));
    for (uint64_t seed = 0; seed < 5; ++seed) {
      const auto drawn = session.sample(request_of(hot, 0, seed));
      const auto expected =
          sample_token(expected_[length - 1], request_of(hot, static_cast<int32_t>(length), seed), kNumTokens);
      ASSERT_TRUE(drawn && expected);
      EXPECT_EQ(drawn->id, expected->id) << "length " << length << " seed " << seed;
    }
  }
}

}  // namespace
}  // namespace kipp
