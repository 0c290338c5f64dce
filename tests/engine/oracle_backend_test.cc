// The oracle as a Backend: steps, sampling on it, blocks, and what it refuses.
#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "backend/backend.h"
#include "engine/twin.h"
#include "gguf/model_file.h"
#include "sampling/sampler.h"

namespace kipp {
namespace {

using testing::HasSubstr;

constexpr Limits kLimits{.max_tokens_per_step = 64, .max_sequences = 4, .max_head_rows = 8, .context = 128};
constexpr int32_t kNumBlocks = 12;

class OracleBackendTest : public testing::Test {
 protected:
  void SetUp() override {
    auto file = ModelFile::open(KIPP_TWIN_ARTIFACT, {.allow_synthetic = true});
    ASSERT_TRUE(file) << file.error().message;
    file_.emplace(*std::move(file));
    load({.num_threads = 2});
  }

  void load(const BackendOptions& options) {
    auto backend = create_backend("oracle", options);
    ASSERT_TRUE(backend) << backend.error().message;
    backend_ = *std::move(backend);
    const auto loaded = backend_->load(*file_, kLimits, kNumBlocks);
    ASSERT_TRUE(loaded) << loaded.error().message;
  }

  // One sequence: tokens from `first_position` on, logits of the last.
  Result<StepId> forward(std::span<const TokenRef> tokens, int32_t first_position, std::span<const int32_t> table) {
    const auto count = static_cast<int32_t>(tokens.size());
    const Span span{0, first_position, count, RowClass::kPrompt,
                    table.first(static_cast<size_t>((first_position + count + 31) / 32))};
    const int32_t head_row = count - 1;
    return backend_->forward({{&span, 1}, tokens, {&head_row, 1}});
  }

  static std::vector<TokenRef> refs(std::span<const int32_t> ids) {
    std::vector<TokenRef> tokens;
    for (const int32_t id : ids) {
      tokens.push_back({.token = id});
    }
    return tokens;
  }

  Logits logits_of(StepId step, int32_t row = 0) {
    Logits logits(static_cast<size_t>(kVocabSize));
    EXPECT_TRUE(backend_->logits(step, row, logits));
    return logits;
  }

  std::optional<ModelFile> file_;
  std::unique_ptr<Backend> backend_;
  const std::vector<int32_t> table_ = {7, 2, 11};
  const SamplingParams greedy_ = with_temperature(0.0F);
};

TEST_F(OracleBackendTest, PlansBeforeItLoads) {
  const auto plan = backend_->plan(*file_, kLimits);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->kv_block_bytes, 2U * 2 * 8 * 32 * 128 * 2);  // layers, K and V, heads, positions, elements, bytes
  EXPECT_GE(plan->workspace_bytes, size_t{8} * 151936 * 4);
  EXPECT_GT(plan->available_bytes, 0U);
  EXPECT_FALSE(backend_->load(*file_, kLimits, 0));
  EXPECT_FALSE(backend_->load(*file_, {.max_tokens_per_step = 0}, 1));
}

TEST_F(OracleBackendTest, SampledIdsFeedTheNextStepWithoutTheHost) {
  const auto ids = draw_tokens(20, 40);
  const auto first = forward(refs(ids), 0, table_);
  ASSERT_TRUE(first);
  const SampleRow row = request_of(greedy_, 20);
  ASSERT_TRUE(backend_->sample(*first, {&row, 1}));
  const std::vector<TokenRef> from_row = {{.token = -1, .from_row = 0}};
  const auto second = forward(from_row, 20, table_);  // before the first is collected
  ASSERT_TRUE(second) << second.error().message;
  const Logits found = logits_of(*second);
  RowResult result;
  ASSERT_TRUE(backend_->collect(*first, {&result, 1}));
  EXPECT_TRUE(result.finite);
  ASSERT_TRUE(backend_->collect(*second, {}));

  const std::vector<TokenRef> by_id = {{.token = result.token.id}};
  const auto third = forward(by_id, 20, table_);
  ASSERT_TRUE(third);
  EXPECT_TRUE(same_bits(found, logits_of(*third)));
}

// Threads share the rows of a draw; each gets what its logits and its request give alone, and its own error.
TEST_F(OracleBackendTest, RowsAreDrawnAsEachAlone) {
  const auto ids = draw_tokens(kLimits.max_head_rows, 41);
  const Span span{0, 0, kLimits.max_head_rows, RowClass::kPrompt, std::span(table_).first(1)};
  std::vector<int32_t> head_rows;
  std::vector<SamplingParams> params;
  for (int32_t row = 0; row < kLimits.max_head_rows; ++row) {
    head_rows.push_back(row);
    params.push_back(with_temperature(row % 2 == 0 ? 0.0F : 5.0F));
  }
  params.back().logit_bias = {{static_cast<int32_t>(kVocabSize), 1.0F}};  // no such id
  for (const int32_t num_threads : {1, 2, 5}) {
    load({.num_threads = num_threads});
    const auto step = backend_->forward({{&span, 1}, refs(ids), head_rows});
    ASSERT_TRUE(step) << step.error().message;
    std::vector<SampleRow> rows;
    for (const SamplingParams& one : params) rows.push_back(request_of(one, static_cast<int32_t>(rows.size())));
    const auto refused = backend_->sample(*step, rows);
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message, HasSubstr("row 7: "));
    rows.back().params = &params.front();
    ASSERT_TRUE(backend_->sample(*step, rows));
    std::vector<RowResult> results(rows.size());
    ASSERT_TRUE(backend_->collect(*step, results));
    for (size_t r = 0; r < rows.size(); ++r) {
      const auto alone = sample_token(logits_of(*step, static_cast<int32_t>(r)), rows[r], file_->info().num_tokens());
      EXPECT_EQ(results[r].token.id, alone->id) << "row " << r << ", " << num_threads << " threads";
    }
  }
}

TEST_F(OracleBackendTest, AtMostTwoStepsAreUncollected) {
  const std::vector<TokenRef> token = {{.token = 1}};
  const auto first = forward(token, 0, table_);
  const auto second = forward(token, 1, table_);
  ASSERT_TRUE(first && second);
  const auto third = forward(token, 2, table_);
  ASSERT_FALSE(third);
  EXPECT_THAT(third.error().message, HasSubstr("collect step 1"));
  ASSERT_TRUE(backend_->collect(*first, {}));
  EXPECT_TRUE(forward(token, 2, table_));
}

TEST_F(OracleBackendTest, StepsAreSampledAndCollectedInOrderAndOnce) {
  const std::vector<TokenRef> token = {{.token = 1}};
  const SampleRow row = request_of(greedy_, 1);
  RowResult result;
  EXPECT_FALSE(backend_->sample(1, {&row, 1}));
  EXPECT_FALSE(backend_->collect(1, {}));
  const auto first = forward(token, 0, table_);
  ASSERT_TRUE(first);
  EXPECT_FALSE(backend_->sample(*first, {}));             // one row is expected
  EXPECT_FALSE(backend_->collect(*first, {&result, 1}));  // nothing was sampled
  ASSERT_TRUE(backend_->sample(*first, {&row, 1}));
  EXPECT_FALSE(backend_->collect(*first, {}));  // one result is expected
  const auto second = forward(token, 1, table_);
  ASSERT_TRUE(second);
  EXPECT_FALSE(backend_->sample(*first, {&row, 1}));  // its logits are gone
  Logits logits(static_cast<size_t>(kVocabSize));
  EXPECT_FALSE(backend_->logits(*first, 0, logits));
  EXPECT_FALSE(backend_->logits(*second, 1, logits));
  EXPECT_FALSE(backend_->logits(*second, -1, logits));
  EXPECT_FALSE(backend_->logits(*second, 0, std::span(logits).first(5)));
  ASSERT_TRUE(backend_->collect(*first, {&result, 1}));
  EXPECT_FALSE(backend_->collect(*first, {&result, 1}));
  ASSERT_TRUE(backend_->collect(*second, {}));
  EXPECT_TRUE(backend_->logits(*second, 0, logits));  // they stand until the next forward
}

// The engine collects a step and draws later, when it is asked to.
TEST_F(OracleBackendTest, AStepThatWasCollectedCanBeSampledAndIsCollectedOnceMore) {
  const auto ids = draw_tokens(20, 40);
  const auto first = forward(refs(ids), 0, table_);
  ASSERT_TRUE(first);
  ASSERT_TRUE(backend_->collect(*first, {}));
  const Logits before = logits_of(*first);
  const SampleRow row = request_of(greedy_, 20);
  ASSERT_TRUE(backend_->sample(*first, {&row, 1}));
  EXPECT_FALSE(backend_->sample(*first, {&row, 1}));  // drawn already
  EXPECT_TRUE(same_bits(before, logits_of(*first)));
  EXPECT_FALSE(backend_->collect(*first, {}));  // one result is expected
  RowResult result;
  ASSERT_TRUE(backend_->collect(*first, {&result, 1}));
  EXPECT_FALSE(backend_->collect(*first, {&result, 1}));
  EXPECT_FALSE(backend_->sample(*first, {&row, 1}));

  const std::vector<TokenRef> from_row = {{.token = -1, .from_row = 0}};
  const auto second = forward(from_row, 20, table_);  // its ids stand
  ASSERT_TRUE(second) << second.error().message;
  const Logits found = logits_of(*second);
  ASSERT_TRUE(backend_->collect(*second, {}));
  const std::vector<TokenRef> by_id = {{.token = result.token.id}};
  const auto third = forward(by_id, 20, table_);
  ASSERT_TRUE(third);
  EXPECT_TRUE(same_bits(found, logits_of(*third)));
  EXPECT_FALSE(backend_->sample(*second, {&row, 1}));  // collected, but no longer the latest
}

TEST_F(OracleBackendTest, AStepThatIsToBeCollectedOnceMoreCountsAsUncollected) {
  const std::vector<TokenRef> token = {{.token = 1}};
  const SampleRow row = request_of(greedy_, 1);
  const auto first = forward(token, 0, table_);
  ASSERT_TRUE(first);
  ASSERT_TRUE(backend_->collect(*first, {}));
  ASSERT_TRUE(backend_->sample(*first, {&row, 1}));
  ASSERT_TRUE(forward(token, 1, table_));
  const auto third = forward(token, 2, table_);
  ASSERT_FALSE(third);
  EXPECT_THAT(third.error().message, HasSubstr("collect step 1"));
}

TEST_F(OracleBackendTest, SamplingErrorsNameTheRow) {
  const std::vector<TokenRef> token = {{.token = 1}};
  const auto step = forward(token, 0, table_);
  ASSERT_TRUE(step);
  const SamplingParams bad = with_temperature(-1.0F);
  const SampleRow row = request_of(bad, 1);
  const auto sampled = backend_->sample(*step, {&row, 1});
  ASSERT_FALSE(sampled);
  EXPECT_EQ(sampled.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(sampled.error().message, HasSubstr("row 0"));
}

TEST_F(OracleBackendTest, LogitsThatAreNotFiniteAreReportedAndNeverFedOn) {
  const auto ids = draw_tokens(31, 41);
  const auto first = forward(refs(ids), 0, table_);
  ASSERT_TRUE(first);
  ASSERT_TRUE(backend_->collect(*first, {}));
  KvBlock block;
  ASSERT_TRUE(backend_->read_block(table_[0], block));
  block.values[5 * 128 + 3] = 0x7FC0;  // one NaN in a key of the first layer
  ASSERT_TRUE(backend_->write_block(table_[0], block));
  const std::vector<TokenRef> token = {{.token = 1}};
  const auto second = forward(token, 31, table_);
  ASSERT_TRUE(second);
  const SampleRow row = request_of(greedy_, 32);
  ASSERT_TRUE(backend_->sample(*second, {&row, 1}));
  const std::vector<TokenRef> from_row = {{.token = -1, .from_row = 0}};
  const auto third = forward(from_row, 32, table_);
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code, ErrorCode::kNumerical);
  RowResult result;
  ASSERT_TRUE(backend_->collect(*second, {&result, 1}));
  EXPECT_FALSE(result.finite);
  EXPECT_EQ(result.token.id, -1);
}

TEST_F(OracleBackendTest, BlocksReadWhatWasWrittenInCanonicalForm) {
  KvBlock in;
  in.values.resize(2 * 2 * 8 * 32 * 128);
  for (size_t i = 0; i < in.values.size(); ++i) {
    in.values[i] = static_cast<uint16_t>(i * 7);
  }
  ASSERT_TRUE(backend_->write_block(3, in));
  const std::vector<int32_t> from = {3};
  const std::vector<int32_t> to = {9};
  ASSERT_TRUE(backend_->copy_blocks(from, to));
  for (const int32_t id : {3, 9}) {
    KvBlock out;
    ASSERT_TRUE(backend_->read_block(id, out));
    EXPECT_EQ(out.values, in.values);
  }
}

TEST_F(OracleBackendTest, BlockErrorsAreRefused) {
  KvBlock block;
  EXPECT_FALSE(backend_->read_block(-1, block));
  EXPECT_FALSE(backend_->read_block(kNumBlocks, block));
  ASSERT_TRUE(backend_->read_block(0, block));
  EXPECT_FALSE(backend_->write_block(kNumBlocks, block));
  block.values.pop_back();
  EXPECT_FALSE(backend_->write_block(0, block));
  const auto copies = [&](const std::vector<int32_t>& from, const std::vector<int32_t>& to) {
    return backend_->copy_blocks(from, to).has_value();
  };
  EXPECT_FALSE(copies({0}, {1, 2}));
  EXPECT_FALSE(copies({0}, {12}));
  EXPECT_FALSE(copies({-1}, {1}));
  EXPECT_FALSE(copies({0, 1}, {1, 2}));
  EXPECT_TRUE(copies({}, {}));
}

TEST_F(OracleBackendTest, AnFp32PoolTakesBlocksButDoesNotRoundThemOut) {
  load({.num_threads = 1, .round_kv = false});
  EXPECT_EQ(backend_->plan(*file_, kLimits)->kv_block_bytes, 2U * 2 * 8 * 32 * 128 * 4);
  KvBlock block;
  const auto read = backend_->read_block(0, block);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::kUnsupported);
  block.values.assign(2 * 2 * 8 * 32 * 128, 0x3F80);
  EXPECT_TRUE(backend_->write_block(0, block));
}

TEST_F(OracleBackendTest, AnInvalidBatchChangesNothing) {
  const std::vector<TokenRef> token = {{.token = 1}};
  const auto first = forward(token, 0, table_);
  ASSERT_TRUE(first);
  const Logits before = logits_of(*first);
  const std::vector<TokenRef> bad = {{.token = kVocabSize}};
  EXPECT_FALSE(forward(bad, 1, table_));
  EXPECT_TRUE(same_bits(before, logits_of(*first)));
  ASSERT_TRUE(backend_->collect(*first, {}));
}

TEST_F(OracleBackendTest, ReportsTheOperatorsThatRan) {
  const std::vector<TokenRef> token = {{.token = 1}};
  ASSERT_TRUE(forward(token, 0, table_));
  const auto kernels = backend_->report().kernels;
  const auto count_of = [&](std::string_view name) {
    const auto found =
        std::ranges::find(kernels, name, [](const auto& kernel) { return std::string_view(kernel.first); });
    return found == kernels.end() ? 0U : found->second;
  };
  EXPECT_EQ(count_of("embedding"), 1U);
  EXPECT_EQ(count_of("matmul_bf16"), 2U * 7 + 1);
  EXPECT_EQ(count_of("attention_bf16"), 2U);
  EXPECT_EQ(count_of("rms_norm"), 2U * 4 + 1);
}

}  // namespace
}  // namespace kipp
