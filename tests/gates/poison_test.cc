// What a session left behind becomes NaN; what it holds stays.
#include "gates/poison.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "backend/backend.h"
#include "gates/reference_twin.h"

namespace kipp::gates {
namespace {

constexpr int32_t kNumBlocks = 8;

size_t num_nans(const KvBlock& block) {
  return static_cast<size_t>(
      std::ranges::count_if(block.values, [](uint16_t bits) { return (bits & 0x7FFFU) > 0x7F80U; }));
}

TEST(PoisonUnused, ReachesFreedBlocksAndTheTailOfTheLastOne) {
  const GateInput input = twin_input();
  const auto model = input.open_model({.placement_seed = 3, .num_blocks = kNumBlocks});
  ASSERT_TRUE(model.has_value());
  Session session = *(*model)->new_session();
  ASSERT_TRUE(session.append(input.vectors.prompts[1].ids).has_value());  // 66 tokens: three blocks
  ASSERT_TRUE(session.truncate(40).has_value());
  const std::vector<int32_t> held(session.block_table().begin(), session.block_table().end());
  ASSERT_EQ(held.size(), 2U);
  KvBlock before;
  ASSERT_TRUE((*model)->backend().read_block(held[0], before).has_value());
  ASSERT_TRUE(poison_unused(**model, kNumBlocks, session).has_value());
  for (int32_t id = 0; id < kNumBlocks; ++id) {
    KvBlock block;
    ASSERT_TRUE((*model)->backend().read_block(id, block).has_value());
    if (id == held[0]) {
      EXPECT_EQ(block.values, before.values);
    } else {  // positions 40 … 63 of the last block, all of a free one
      EXPECT_EQ(num_nans(block), id == held[1] ? block.values.size() / 32 * 24 : block.values.size()) << id;
    }
  }
}

TEST(PoisonUnused, ReachesEveryBlockAroundAnEmptySession) {
  const GateInput input = twin_input();
  const auto model = input.open_model({.num_blocks = kNumBlocks});
  ASSERT_TRUE(model.has_value());
  Session session = *(*model)->new_session();
  ASSERT_TRUE(session.append(input.vectors.prompts[1].ids).has_value());
  session.reset();
  ASSERT_TRUE(poison_unused(**model, kNumBlocks, session).has_value());
  for (int32_t id = 0; id < kNumBlocks; ++id) {
    KvBlock block;
    ASSERT_TRUE((*model)->backend().read_block(id, block).has_value());
    EXPECT_EQ(num_nans(block), block.values.size()) << id;
  }
}

}  // namespace
}  // namespace kipp::gates
