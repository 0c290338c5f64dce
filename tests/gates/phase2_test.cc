// Phase 2 is bitwise on the twin, and red when the cache holds something else than the stateless pass computed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "backend/backend.h"
#include "gates/decode.h"
#include "gates/reference_twin.h"

namespace kipp::gates {
namespace {

using ::testing::IsEmpty;

TEST(Phase2, IsBitwiseOnTheTwin) {
  const auto record = run_phase2(twin_input());
  ASSERT_TRUE(record.has_value()) << record.error().message;
  EXPECT_THAT(record->failures, IsEmpty());
  EXPECT_EQ(record->details.find("bitwise_equal")->as_int64(), 69);
  EXPECT_EQ(record->details.find("logits")->find("nmse")->as_double(), 0.0);
}

class CompareDecode : public ::testing::Test {
 protected:
  void SetUp() override {
    input_.emplace(twin_input());
    auto model = input_->open_model({});
    ASSERT_TRUE(model.has_value());
    model_ = *std::move(model);
    ids_ = std::vector<int32_t>(input_->vectors.prompts[1].ids.begin(), input_->vectors.prompts[1].ids.begin() + 40);
    auto rows = stateless_rows(*model_, ids_);
    ASSERT_TRUE(rows.has_value());
    rows_ = *std::move(rows);
  }

  // Decodes on a session that already holds the first 33 tokens, after `tamper` has had the session's blocks.
  Comparison decode_after(const std::function<void(std::span<const int32_t> blocks)>& tamper) {
    Session session = *model_->new_session();
    EXPECT_TRUE(session.append(std::span(ids_).first(33)).has_value());
    tamper(session.block_table());
    const auto comparison = compare_decode(session, ids_, rows_, NearTieRule());
    EXPECT_TRUE(comparison.has_value());
    return comparison.value_or(Comparison{});
  }

  std::optional<GateInput> input_;
  std::unique_ptr<Model> model_;
  std::vector<int32_t> ids_;
  std::vector<std::vector<float>> rows_;
};

TEST_F(CompareDecode, PassesUntampered) {
  const Comparison comparison = decode_after([](std::span<const int32_t>) {});
  EXPECT_EQ(comparison.num_rows, 7);
  EXPECT_EQ(comparison.num_bitwise, 7);
  EXPECT_THAT(violations(comparison, {.nmse = 0.0}), IsEmpty());
}

TEST_F(CompareDecode, NoticesSwappedKeysAndValues) {
  const Comparison comparison = decode_after([this](std::span<const int32_t> blocks) {
    KvBlock block;
    ASSERT_TRUE(model_->backend().read_block(blocks[0], block).has_value());
    const size_t half = static_cast<size_t>(kNumKvHeads) * kBlockPositions * kHeadDim;  // K of a layer, then V
    for (size_t layer = 0; layer < block.values.size(); layer += 2 * half) {
      const auto begin = block.values.begin() + static_cast<ptrdiff_t>(layer);
      std::swap_ranges(begin, begin + static_cast<ptrdiff_t>(half), begin + static_cast<ptrdiff_t>(half));
    }
    ASSERT_TRUE(model_->backend().write_block(blocks[0], block).has_value());
  });
  EXPECT_EQ(comparison.num_bitwise, 0);
  EXPECT_FALSE(violations(comparison, {.nmse = 1e-6, .near_tie_share = 1.0}).empty());
}

TEST_F(CompareDecode, NoticesOneFlippedBit) {
  const Comparison comparison = decode_after([this](std::span<const int32_t> blocks) {
    KvBlock block;
    ASSERT_TRUE(model_->backend().read_block(blocks[1], block).has_value());
    block.values[0] ^= 0x0040U;  // a mantissa bit of K at position 32, head 0, layer 0
    ASSERT_TRUE(model_->backend().write_block(blocks[1], block).has_value());
  });
  EXPECT_LT(comparison.num_bitwise, comparison.num_rows);
  EXPECT_FALSE(violations(comparison, {.nmse = 0.0, .near_tie_share = 1.0}).empty());
}

TEST_F(CompareDecode, NoticesRowsOutOfOrder) {
  std::swap(rows_[35], rows_[36]);
  const Comparison comparison = decode_after([](std::span<const int32_t>) {});
  EXPECT_EQ(comparison.num_bitwise, 5);
  EXPECT_FALSE(violations(comparison, {.nmse = 0.0, .near_tie_share = 1.0}).empty());
}

}  // namespace
}  // namespace kipp::gates
