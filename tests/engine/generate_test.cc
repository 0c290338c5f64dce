// The generation loop: what ends it, what is shown, and what the session holds afterwards.
#include "engine/generate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/twin.h"

namespace kipp {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

std::vector<int32_t> joined(std::vector<int32_t> prompt, std::span<const int32_t> ids) {
  prompt.insert(prompt.end(), ids.begin(), ids.end());
  return prompt;
}

class Generate : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(model_, nullptr); }

  Result<GenerateResult> run(Session& session, const GenerateOptions& options, const GenerateCallback& callback = {}) {
    return generate(*model_, session, prompt_, options, callback);
  }
  // The greedy continuation of count tokens.
  std::vector<int32_t> greedy(int32_t count) {
    Session session = model_->new_session().value();
    return run(session, {.sampling = with_temperature(0.0F), .max_tokens = count}).value().ids;
  }

  std::unique_ptr<Model> model_ = open_twin();
  std::vector<int32_t> prompt_ = draw_tokens(5, 1);
};

TEST_F(Generate, EndsAtTheLimitHoldingAllButTheLastId) {
  Session session = model_->new_session().value();
  const auto result = run(session, {.sampling = with_temperature(0.0F), .max_tokens = 3});
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_EQ(result->finish_reason, FinishReason::kLength);
  EXPECT_FALSE(result->context_full);
  ASSERT_EQ(result->ids.size(), 3U);
  EXPECT_THAT(session.tokens(), ElementsAreArray(joined(prompt_, std::span(result->ids).first(2))));
  EXPECT_EQ(result->timings.prompt_tokens, 5);
  EXPECT_EQ(result->timings.decode_steps, 2);
}

TEST_F(Generate, AStopTokenEndsItHoldingAllIds) {
  Session first = model_->new_session().value();
  GenerateOptions options;
  options.seed = 3;
  options.max_tokens = 4;
  const std::vector<int32_t> ids = run(first, options).value().ids;
  ASSERT_EQ(std::count(ids.begin(), ids.end(), ids[3]), 1) << "the fourth id must be new";
  Session session = model_->new_session().value();
  options.max_tokens = -1;
  options.stop_token_ids = {ids[3]};
  const auto result = run(session, options);
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_EQ(result->finish_reason, FinishReason::kStop);
  EXPECT_EQ(result->stop_token, ids[3]);
  EXPECT_THAT(result->ids, ElementsAreArray(std::span(ids).first(3)));
  EXPECT_THAT(session.tokens(), ElementsAreArray(joined(prompt_, result->ids)));
}

TEST_F(Generate, TheCallbackEndsItHoldingAllButTheLastId) {
  Session session = model_->new_session().value();
  size_t seen = 0;
  const auto result = run(session, {.sampling = with_temperature(0.0F), .max_tokens = 9},
                          [&](const GenerateStep* step) { return step == nullptr || ++seen < 2; });
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_EQ(result->finish_reason, FinishReason::kCancelled);
  ASSERT_EQ(result->ids.size(), 2U);
  EXPECT_THAT(session.tokens(), ElementsAreArray(joined(prompt_, std::span(result->ids).first(1))));
}

TEST_F(Generate, ALongPromptAsksOftenWhetherToGoOn) {
  Session session = model_->new_session().value();
  prompt_ = draw_tokens(300, 2);
  int32_t before = 0;
  int32_t longest = 0;
  const auto result = run(session, {.max_tokens = 0}, [&](const GenerateStep*) {
    longest = std::max(longest, session.length() - before);
    before = session.length();
    return true;
  });
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_EQ(session.length(), 300);
  EXPECT_LE(std::max(longest, session.length() - before), 64);
}

TEST_F(Generate, CancelledInThePromptItHoldsThePartThatWasEvaluated) {
  prompt_ = draw_tokens(600, 2);
  auto options = twin_options();
  options.context = 1024;
  model_ = open_twin(options);
  ASSERT_NE(model_, nullptr);
  Session session = model_->new_session().value();
  int pieces = 0;
  const auto result = run(session, {.max_tokens = 1}, [&](const GenerateStep*) { return ++pieces < 2; });
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_EQ(result->finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(result->timings.prompt_tokens, session.length());
  EXPECT_GT(session.length(), 0);
  EXPECT_LT(session.length(), 600);
}

TEST_F(Generate, TheContextIsALimitToo) {
  Session session = model_->new_session().value();
  prompt_ = draw_tokens(static_cast<size_t>(model_->context()) - 2, 3);
  const auto result = run(session, {.sampling = with_temperature(0.0F)});
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_EQ(result->finish_reason, FinishReason::kLength);
  EXPECT_TRUE(result->context_full);
  EXPECT_EQ(result->ids.size(), 2U);
}

TEST_F(Generate, PiecesAndTheLastTextAreTheText) {
  Session session = model_->new_session().value();
  std::string shown;
  const auto result = run(session, {.seed = 7, .max_tokens = 12}, [&](const GenerateStep* step) {
    shown += step != nullptr ? std::string(step->text) : "";
    return true;
  });
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_EQ(shown + result->last_text, result->text);
  EXPECT_EQ(model_->tokenizer().decode(result->ids, true).value(), result->text);
}

TEST_F(Generate, AStopStringEndsTheTextBeforeIt) {
  const std::vector<int32_t> ids = greedy(8);
  const Tokenizer& tokenizer = model_->tokenizer();
  const std::string whole = tokenizer.decode(ids, true).value();
  const auto inside_character = [&](size_t at) { return at < whole.size() && (whole[at] & 0xC0) == 0x80; };
  size_t begin = tokenizer.decode(std::span(ids).first(3), true).value().size() - 1;
  size_t end = begin + 3;
  while (inside_character(begin)) {
    --begin;
  }
  while (inside_character(end)) {
    ++end;
  }
  const std::string stop = whole.substr(begin, end - begin);  // its first character is the last of the third id
  ASSERT_EQ(whole.find(stop), begin) << "the stop string must be new";
  GenerateOptions options;
  options.sampling = with_temperature(0.0F);
  options.stop = {"never said", stop};
  Session session = model_->new_session().value();
  std::string shown;
  const auto result = run(session, options, [&](const GenerateStep* step) {
    shown += step != nullptr ? std::string(step->text) : "";
    return true;
  });
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_EQ(result->finish_reason, FinishReason::kStop);
  EXPECT_EQ(result->stop_token, -1);
  EXPECT_EQ(result->stop_string, stop);
  EXPECT_EQ(result->text, whole.substr(0, begin));
  EXPECT_EQ(shown + result->last_text, result->text);
  EXPECT_THAT(result->ids, ElementsAreArray(std::span(ids).first(result->ids.size())));
  EXPECT_THAT(session.tokens(),
              ElementsAreArray(joined(prompt_, std::span(result->ids).first(result->ids.size() - 1))));
}

TEST_F(Generate, TextHeldForAStopStringIsTheLastText) {
  const std::vector<int32_t> ids = greedy(4);
  const std::string whole = model_->tokenizer().decode(ids, true).value();
  GenerateOptions options;
  options.sampling = with_temperature(0.0F);
  options.max_tokens = 4;
  options.stop = {whole.substr(whole.size() - 1) + std::string(3, '\x01')};
  Session session = model_->new_session().value();
  const auto result = run(session, options);
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_EQ(result->finish_reason, FinishReason::kLength);
  EXPECT_EQ(result->text, whole);
  EXPECT_EQ(result->last_text, whole.substr(whole.size() - 1));
}

TEST_F(Generate, AnEmptyStopStringIsRefused) {
  GenerateOptions options;
  options.stop = {""};
  Session session = model_->new_session().value();
  EXPECT_EQ(run(session, options).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(session.length(), 0);
}

TEST_F(Generate, AnEmptyPromptContinuesOrIsRefused) {
  const std::vector<int32_t> ids = greedy(4);
  Session session = model_->new_session().value();
  ASSERT_TRUE(session.append(joined(prompt_, std::span(ids).first(1))).has_value());
  prompt_.clear();
  const auto result = run(session, {.sampling = with_temperature(0.0F), .max_tokens = 3});
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_THAT(result->ids, ElementsAreArray(std::span(ids).subspan(1)));
  session.reset();
  EXPECT_EQ(run(session, {}).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(Generate, APromptThatDoesNotFitNamesBothNumbers) {
  Session session = model_->new_session().value();
  prompt_ = draw_tokens(static_cast<size_t>(model_->context()) + 3, 4);
  const auto result = run(session, {});
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, ErrorCode::kCapacity);
  EXPECT_THAT(result.error().message, HasSubstr(std::to_string(prompt_.size())));
  EXPECT_THAT(result.error().message, HasSubstr(std::to_string(model_->context())));
  EXPECT_EQ(session.length(), 0);
}

}  // namespace
}  // namespace kipp
