// The placement gate is green on the twin; its comparisons notice a changed bit and a NaN.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/backend.h"
#include "gates/reference_twin.h"
#include "gates/row_digests.h"

namespace kipp::gates {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(PlacementGate, PassesOnTheTwin) {
  const auto record = run_placement(twin_input());
  ASSERT_TRUE(record.has_value()) << record.error().message;
  EXPECT_THAT(record->failures, IsEmpty());
  EXPECT_EQ(record->details.find("prompts_in_scrambled_tables")->as_int64(), 1);
  // 69 rows five times (placed, decoded, in pieces, reused, batched), and 33 after the truncations.
  EXPECT_EQ(record->details.find("rows_compared")->as_int64(), 5 * 69 + 33 + (39 + 37 + 35) + 3 * 3);
}

TEST(PlacementGate, ShowsNothingWithoutAPromptOfThreeBlocks) {
  GateInput input = twin_input();
  input.vectors.prompts.resize(1);
  const auto record = run_placement(input);
  ASSERT_TRUE(record.has_value());
  EXPECT_THAT(record->failures, ElementsAre(HasSubstr("nothing was shown")));
}

TEST(DigestsInPieces, StopAtPoisonThatWasRead) {
  const GateInput input = twin_input();
  const auto model = input.open_model({});
  ASSERT_TRUE(model.has_value());
  Session session = *(*model)->new_session();
  const std::span<const int32_t> ids(input.vectors.prompts[1].ids);
  ASSERT_TRUE(session.append(ids.first(33)).has_value());
  KvBlock block;
  ASSERT_TRUE((*model)->backend().read_block(session.block_table()[1], block).has_value());
  std::fill(block.values.begin(), block.values.end(), uint16_t{0x7FC0});
  ASSERT_TRUE((*model)->backend().write_block(session.block_table()[1], block).has_value());
  constexpr size_t kOne = 1;
  const auto digests = digests_in_pieces(session, ids.subspan(33, 3), {&kOne, 1}, false);
  ASSERT_FALSE(digests.has_value());
  EXPECT_EQ(digests.error().code, ErrorCode::kNumerical);
}

TEST(RowDigest, ChangesWithEveryBit) {
  const std::vector<float> row = {1.0F, 2.0F, 0.0F};
  const uint64_t digest = *row_digest(row);
  EXPECT_EQ(*row_digest(row), digest);
  EXPECT_NE(*row_digest(std::vector<float>{1.0F, 2.0F, -0.0F}), digest);
  EXPECT_NE(*row_digest(std::vector<float>{2.0F, 1.0F, 0.0F}), digest);
  EXPECT_NE(*row_digest(std::vector<float>{1.0F, std::nextafter(2.0F, 3.0F), 0.0F}), digest);
  EXPECT_FALSE(row_digest(std::vector<float>{std::numeric_limits<float>::infinity()}).has_value());
}

TEST(DigestDifferences, NameTheFirstRow) {
  EXPECT_THAT(digest_differences("x", {1, 2, 3}, {1, 2, 3}), IsEmpty());
  EXPECT_THAT(digest_differences("x", {1, 5, 3}, {1, 2, 3}), ElementsAre(HasSubstr("1 of 3 rows")));
  EXPECT_THAT(digest_differences("x", {1, 2}, {1, 2, 3}), ElementsAre(HasSubstr("the first at row 2")));
  EXPECT_THAT(digest_differences("x", {}, {}).size(), 1U);
}

}  // namespace
}  // namespace kipp::gates
