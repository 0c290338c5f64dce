// What the engine asks of a backend: spans with the class, positions and blocks of their sequences, in step order.
#include "engine/evaluate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/recording_backend.h"
#include "engine/twin.h"

namespace kipp {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

class EvaluateTest : public testing::Test {
 protected:
  void SetUp() override {
    model_ = make_recorded_model();
    ASSERT_NE(model_, nullptr);
    backend_ = static_cast<RecordingBackend*>(model_->backend.get());
  }

  static void expect_span(const SeenSpan& seen, int32_t slot, int32_t first_position, RowClass row_class,
                          std::span<const int32_t> tokens) {
    EXPECT_EQ(seen.span.slot, slot);
    EXPECT_EQ(seen.span.first_position, first_position);
    EXPECT_EQ(seen.span.row_class, row_class);
    EXPECT_THAT(seen.tokens, ElementsAreArray(tokens));
  }

  std::unique_ptr<Model::Impl> model_;
  RecordingBackend* backend_ = nullptr;  // the model's
};

TEST_F(EvaluateTest, EverySpanHasTheClassPositionsAndBlocksOfItsRequest) {
  Session::Impl first(*model_);
  Session::Impl second(*model_);
  const std::vector<int32_t> prompt = draw_tokens(40, 70);
  const Evaluation before{&first, prompt, {}, RowClass::kPrompt};
  ASSERT_TRUE(evaluate(*model_, {&before, 1}, nullptr));
  const std::vector<int32_t> sampled = {17};
  const std::vector<int32_t> sampled_row = {0};
  const std::vector<int32_t> other = {4, 5, 6};
  const std::vector<int32_t> other_rows = {0, 2};
  const Evaluation together[] = {{&first, sampled, sampled_row, RowClass::kGenerated},
                                 {&second, other, other_rows, RowClass::kPrompt}};
  std::vector<RowLogits> logits;
  const auto done = evaluate(*model_, together, &logits);
  ASSERT_TRUE(done) << done.error().message;
  ASSERT_EQ(backend_->steps.size(), 2U);
  const std::vector<SeenSpan>& step = backend_->steps[1];
  ASSERT_EQ(step.size(), 2U);
  expect_span(step[0], 0, 40, RowClass::kGenerated, sampled);
  expect_span(step[1], 1, 0, RowClass::kPrompt, other);
  EXPECT_THAT(step[0].blocks, ElementsAreArray(first.table.blocks()));
  EXPECT_THAT(step[1].blocks, ElementsAreArray(second.table.blocks()));
  EXPECT_THAT(backend_->head_rows[1], ElementsAre(0, 1, 3));  // of the batch: the second request begins at row 1
  EXPECT_EQ(logits[0].size(), 1U);
  EXPECT_EQ(logits[1].size(), 2U);
}

TEST_F(EvaluateTest, ChunksOfOneRequestKeepItsClassAndNameOnlyTheBlocksTheyReach) {
  Session::Impl session(*model_);
  const std::vector<int32_t> tokens = draw_tokens(70, 71);
  const std::vector<int32_t> last = {69};
  const Evaluation evaluation{&session, tokens, last, RowClass::kGenerated};
  ASSERT_TRUE(evaluate(*model_, {&evaluation, 1}, nullptr));
  ASSERT_EQ(backend_->steps.size(), 2U);
  expect_span(backend_->steps[0][0], 0, 0, RowClass::kGenerated, std::span(tokens).first(48));
  expect_span(backend_->steps[1][0], 0, 48, RowClass::kGenerated, std::span(tokens).subspan(48));
  EXPECT_EQ(backend_->steps[0][0].blocks.size(), 2U);
  EXPECT_EQ(backend_->steps[1][0].blocks.size(), 3U);
  EXPECT_THAT(backend_->head_rows[0], ElementsAre());
  EXPECT_THAT(backend_->head_rows[1], ElementsAre(21));
  ASSERT_TRUE(session.read_logits());
  EXPECT_EQ(session.logits[0], RecordingBackend::value_of(2, 0));
}

}  // namespace
}  // namespace kipp
