// What the engine asks of a backend: spans with the class, positions and blocks of their sequences, in step order.
#include "engine/evaluate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/twin.h"

namespace kipp {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

// A span with copies of what it only refers to.
struct SeenSpan {
  Span span;
  std::vector<int32_t> blocks;
  std::vector<int32_t> tokens;
};

// Writes down what it is asked for; all logits are the number of the step.
class RecordingBackend final : public Backend {
 public:
  Result<StepId> forward(const Batch& batch) override {
    size_t token = 0;
    std::vector<SeenSpan> step;
    for (const Span& span : batch.spans) {
      SeenSpan& seen = step.emplace_back(SeenSpan{span, {span.block_table.begin(), span.block_table.end()}, {}});
      for (int32_t t = 0; t < span.num_tokens; ++t) {
        seen.tokens.push_back(batch.tokens[token++].token);
      }
    }
    steps.push_back(std::move(step));
    head_rows.emplace_back(batch.head_rows.begin(), batch.head_rows.end());
    return steps.size();
  }
  Result<void> collect(StepId, std::span<RowResult>) override { return {}; }
  Result<void> logits(StepId step, int32_t, std::span<float> out) override {
    std::fill(out.begin(), out.end(), static_cast<float>(step));
    return {};
  }

  Result<MemoryPlan> plan(const ModelFile&, const Limits&) const override { return unused(); }
  Result<void> load(const ModelFile&, const Limits&, int32_t) override { return unused(); }
  Result<void> sample(StepId, std::span<const SampleRow>) override { return unused(); }
  Result<void> evaluate_stateless(std::span<const int32_t>, const StatelessObserver&) override { return unused(); }
  Result<void> copy_blocks(std::span<const int32_t>, std::span<const int32_t>) override { return unused(); }
  Result<void> read_block(int32_t, KvBlock&) const override { return unused(); }
  Result<void> write_block(int32_t, const KvBlock&) override { return unused(); }
  Report report() const override { return {}; }
  const OperatorTable& operators() const override {
    static constexpr OperatorTable kNothing{};
    return kNothing;
  }

  std::vector<std::vector<SeenSpan>> steps;
  std::vector<std::vector<int32_t>> head_rows;  // of each step

 private:
  static tl::unexpected<Error> unused() { return make_error(ErrorCode::kInternal, "not part of an evaluation"); }
};

class EvaluateTest : public testing::Test {
 protected:
  void SetUp() override {
    auto file = ModelFile::open(KIPP_TWIN_ARTIFACT, {.allow_synthetic = true});
    ASSERT_TRUE(file) << file.error().message;
    auto tokenizer = Tokenizer::create(file->tokenizer());
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    auto backend = std::make_unique<RecordingBackend>();
    backend_ = backend.get();
    const Limits limits{.max_tokens_per_step = 48, .max_sequences = 4, .max_head_rows = 4, .context = 128};
    model_ = std::make_unique<Model::Impl>(
        Model::Impl{*std::move(file), *std::move(tokenizer), limits, std::move(backend), BlockPool(8)});
  }

  Session::Impl new_session() { return {model_.get(), BlockTable(model_->pool), {}, {}}; }

  static void expect_span(const SeenSpan& seen, int32_t slot, int32_t first_position, RowClass row_class,
                          std::span<const int32_t> tokens) {
    EXPECT_EQ(seen.span.slot, slot);
    EXPECT_EQ(seen.span.first_position, first_position);
    EXPECT_EQ(seen.span.row_class, row_class);
    EXPECT_THAT(seen.tokens, ElementsAreArray(tokens));
  }

  RecordingBackend* backend_ = nullptr;
  std::unique_ptr<Model::Impl> model_;
};

TEST_F(EvaluateTest, EverySpanHasTheClassPositionsAndBlocksOfItsRequest) {
  Session::Impl first = new_session();
  Session::Impl second = new_session();
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
  Session::Impl session = new_session();
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
  EXPECT_EQ(session.logits[0], 2.0F);  // those of the second step
}

}  // namespace
}  // namespace kipp
