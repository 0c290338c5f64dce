// Batched evaluation: a request's logits do not depend on its mates, and an error changes no session.
#include <gmock/gmock.h>

#include <numeric>

#include "engine/twin.h"

namespace kipp {
namespace {

using testing::HasSubstr;

// A ragged batch: lengths around block boundaries, one longer than a step's tokens minus the others.
constexpr size_t kPrefixes[] = {0, 31, 32, 5, 64};
constexpr size_t kLengths[] = {33, 1, 70, 2, 31};
constexpr size_t kCount = std::size(kLengths);

std::vector<int32_t> tokens_of(size_t request) {
  return draw_tokens(kPrefixes[request] + kLengths[request], 50 + request);
}

TEST(StepTest, BatchedEqualsIsolated) {
  const auto model = open_twin();
  ASSERT_NE(model, nullptr);
  std::vector<Session> sessions;
  std::vector<std::vector<int32_t>> tokens;
  std::vector<std::vector<int32_t>> head_rows;
  std::vector<Model::StepRequest> requests;
  for (size_t r = 0; r < kCount; ++r) {
    sessions.push_back(*model->new_session());
    tokens.push_back(tokens_of(r));
    if (kPrefixes[r] > 0) {
      ASSERT_TRUE(sessions[r].append(std::span(tokens[r]).first(kPrefixes[r])));
    }
    const auto last = static_cast<int32_t>(kLengths[r]) - 1;
    head_rows.push_back(r == 3      ? std::vector<int32_t>{0}
                        : last > 20 ? std::vector<int32_t>{3, 20, last}
                                    : std::vector<int32_t>{last});
  }
  for (size_t r = 0; r < kCount; ++r) {
    requests.push_back({&sessions[r], std::span(tokens[r]).subspan(kPrefixes[r]), head_rows[r], r % 2 == 1});
  }
  const auto batched = model->step_all_logits(requests);
  ASSERT_TRUE(batched) << batched.error().message;
  ASSERT_EQ(batched->size(), kCount);
  for (size_t r = 0; r < kCount; ++r) {
    Session alone = *model->new_session();
    std::vector<int32_t> rows;  // the same, counted from the sequence's start
    for (const int32_t row : head_rows[r]) {
      rows.push_back(row + static_cast<int32_t>(kPrefixes[r]));
    }
    const Model::StepRequest request{&alone, tokens[r], rows};
    const auto expected = model->step_all_logits({&request, 1});
    ASSERT_TRUE(expected);
    ASSERT_EQ((*batched)[r].size(), head_rows[r].size());
    for (size_t j = 0; j < head_rows[r].size(); ++j) {
      EXPECT_TRUE(same_bits((*batched)[r][j], (*expected)[0][j])) << "request " << r << " row " << rows[j];
    }
    EXPECT_EQ(sessions[r].length(), static_cast<int32_t>(tokens[r].size()));
    if (r == 3) {
      EXPECT_TRUE(sessions[r].logits().empty());  // its last row was no head row
    } else {
      EXPECT_TRUE(same_bits(sessions[r].logits(), (*expected)[0].back()));
    }
    ASSERT_TRUE(sessions[r].append(draw_tokens(1, 9)));  // and the KV is the same
    ASSERT_TRUE(alone.append(draw_tokens(1, 9)));
    EXPECT_TRUE(same_bits(sessions[r].logits(), alone.logits()));
  }
}

// One sequence whose attention is cut into segments, a prompt's chunk and single tokens at a segment's border and at
// the very start, in one step.
TEST(StepTest, ALongContextAmongShortOnesEqualsIsolated) {
  constexpr size_t kHeld[] = {1540, 50, 0, 33};
  constexpr size_t kNew[] = {1, 40, 1, 1};
  ModelOptions options = twin_options();
  options.context = 1600;
  options.num_blocks = 60;
  std::vector<std::vector<int32_t>> tokens;
  std::vector<Logits> expected;
  options.num_threads = 1;
  const auto alone = open_twin(options);
  ASSERT_NE(alone, nullptr);
  for (size_t r = 0; r < std::size(kHeld); ++r) {
    tokens.push_back(draw_tokens(kHeld[r] + kNew[r], 70 + r));
    Session session = *alone->new_session();
    ASSERT_TRUE(session.append(tokens[r]));
    expected.emplace_back(session.logits().begin(), session.logits().end());
  }
  const bool is_oracle = options.backend == "oracle";  // seconds for each number of threads
  for (const int32_t num_threads : is_oracle ? std::vector{2} : std::vector{1, 2, 5}) {
    options.num_threads = num_threads;
    const auto model = open_twin(options);
    ASSERT_NE(model, nullptr);
    std::vector<Session> sessions;
    std::vector<std::vector<int32_t>> last_rows;
    for (size_t r = 0; r < std::size(kHeld); ++r) {
      sessions.push_back(*model->new_session());
      ASSERT_TRUE(kHeld[r] == 0 || sessions[r].append(std::span(tokens[r]).first(kHeld[r])));
      last_rows.push_back({static_cast<int32_t>(kNew[r]) - 1});
    }
    std::vector<Model::StepRequest> requests;
    for (size_t r = 0; r < std::size(kHeld); ++r) {
      requests.push_back({&sessions[r], std::span(tokens[r]).subspan(kHeld[r]), last_rows[r]});
    }
    ASSERT_TRUE(model->step(requests));
    for (size_t r = 0; r < std::size(kHeld); ++r) {
      EXPECT_TRUE(same_bits(sessions[r].logits(), expected[r])) << "request " << r << ", " << num_threads << " threads";
    }
  }
}

class StepErrorTest : public testing::Test {
 protected:
  void SetUp() override {
    ModelOptions options = twin_options();
    options.num_blocks = 4;
    options.context = 100;
    model_ = open_twin(options);
    ASSERT_NE(model_, nullptr);
    first_.emplace(*model_->new_session());
    second_.emplace(*model_->new_session());
    ASSERT_TRUE(first_->append(tokens_));
    ASSERT_TRUE(second_->append(tokens_));
    logits_.assign(first_->logits().begin(), first_->logits().end());
  }

  void expect_refused(std::span<const Model::StepRequest> requests, ErrorCode code, const char* message) {
    const auto result = model_->step_all_logits(requests);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, code);
    EXPECT_THAT(result.error().message, HasSubstr(message));
    for (const auto* session : {&*first_, &*second_}) {
      EXPECT_EQ(session->length(), 3);
      EXPECT_EQ(session->block_table().size(), 1U);
      EXPECT_TRUE(same_bits(session->logits(), logits_));
    }
    EXPECT_EQ(model_->num_free_blocks(), 2);
  }

  const std::vector<int32_t> tokens_ = {1, 2, 3};
  const std::vector<int32_t> last_ = {2};
  std::unique_ptr<Model> model_;
  std::optional<Session> first_, second_;
  std::vector<float> logits_;
};

TEST_F(StepErrorTest, EveryErrorNamesTheRequestAndChangesNothing) {
  const Model::StepRequest good{&*first_, tokens_, last_};
  const std::vector<int32_t> bad_id = {1, -4, 3};
  const std::vector<int32_t> too_long(98, 1);
  const std::vector<int32_t> three_blocks(70, 1);
  const std::vector<int32_t> descending = {2, 0};
  const std::vector<int32_t> beyond = {3};
  const auto with = [&](const Model::StepRequest& second) { return std::vector{good, second}; };
  expect_refused(with({&*second_, {}, {}}), ErrorCode::kInvalidArgument, "request 1: expected at least one token");
  expect_refused(with({&*second_, bad_id, last_}), ErrorCode::kInvalidArgument, "request 1: token 1: expected an id");
  expect_refused(with({&*second_, tokens_, descending}), ErrorCode::kInvalidArgument, "request 1: head_rows[1]");
  expect_refused(with({&*second_, tokens_, beyond}), ErrorCode::kInvalidArgument, "request 1: head_rows[0]");
  expect_refused(with({&*first_, tokens_, last_}), ErrorCode::kInvalidArgument, "request 1: an earlier request");
  expect_refused(with({&*second_, too_long, {}}), ErrorCode::kCapacity, "request 1: 98 tokens");
  const std::vector<int32_t> two_blocks(40, 1);
  const std::vector both = {Model::StepRequest{&*first_, two_blocks, {}},
                            Model::StepRequest{&*second_, three_blocks, {}}};
  expect_refused(both, ErrorCode::kCapacity, "request 1: 73 positions need 2 more KV blocks");
}

TEST_F(StepErrorTest, ASessionOfAnotherModelIsRefused) {
  const auto other = open_twin();
  ASSERT_NE(other, nullptr);
  Session stranger = *other->new_session();
  const std::vector requests = {Model::StepRequest{&*first_, tokens_, last_},
                                Model::StepRequest{&stranger, tokens_, last_}};
  expect_refused(requests, ErrorCode::kInvalidArgument, "request 1: the session belongs to another model");
}

TEST_F(StepErrorTest, NoRequestsAreNoWork) {
  const auto result = model_->step_all_logits({});
  ASSERT_TRUE(result);
  EXPECT_TRUE(result->empty());
  EXPECT_TRUE(model_->step({}));
}

TEST(StepTest, MoreRowsAndTokensThanAStepHoldsAreCut) {
  const auto model = open_twin();
  ASSERT_NE(model, nullptr);
  const auto long_tokens = draw_tokens(510, 60);
  const auto short_tokens = draw_tokens(70, 61);
  std::vector<int32_t> all_rows(70);
  std::iota(all_rows.begin(), all_rows.end(), 0);
  const std::vector<int32_t> last = {509};
  Session alone = *model->new_session();
  ModelOptions options = twin_options();
  options.num_blocks = 32;
  const auto wide = open_twin(options);
  Session first = *wide->new_session();
  Session second = *wide->new_session();
  const std::vector requests = {Model::StepRequest{&first, long_tokens, last},
                                Model::StepRequest{&second, short_tokens, all_rows}};
  const auto result = wide->step_all_logits(requests);
  ASSERT_TRUE(result) << result.error().message;
  ASSERT_TRUE(alone.append(long_tokens));
  EXPECT_TRUE(same_bits((*result)[0][0], alone.logits()));
  const auto expected = fresh_logits(short_tokens);
  for (size_t row = 0; row < 70; ++row) {
    EXPECT_TRUE(same_bits((*result)[1][row], expected[row])) << row;
  }
}

}  // namespace
}  // namespace kipp
