// The radix heap against a sorted map: ranks ascend, and the positions of one rank come together and in order.
#include "tokenizer/rank_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <vector>

namespace kipp {
namespace {

using ::testing::ElementsAre;

TEST(RankQueue, PositionsOfARankAreSorted) {
  RankQueue queue;
  queue.push(7, 30);
  queue.push(7, 10);
  queue.push(7, 20);
  uint32_t rank = 0;
  std::vector<uint32_t> positions;
  ASSERT_TRUE(queue.pop(rank, positions));
  EXPECT_EQ(rank, 7U);
  EXPECT_THAT(positions, ElementsAre(10, 20, 30));
  EXPECT_FALSE(queue.pop(rank, positions));
  EXPECT_THAT(positions, ElementsAre());
}

TEST(RankQueue, ClearForgetsTheLastRank) {
  RankQueue queue;
  uint32_t rank = 0;
  std::vector<uint32_t> positions;
  queue.push(std::numeric_limits<uint32_t>::max(), 1);
  queue.push(std::numeric_limits<uint32_t>::max() - 1, 2);
  ASSERT_TRUE(queue.pop(rank, positions));
  EXPECT_EQ(rank, std::numeric_limits<uint32_t>::max() - 1);
  queue.clear();
  queue.push(0, 3);
  ASSERT_TRUE(queue.pop(rank, positions));
  EXPECT_EQ(rank, 0U);
  EXPECT_THAT(positions, ElementsAre(3));
  EXPECT_FALSE(queue.pop(rank, positions));
}

// Random pushes between pops, never below the last rank popped: what BPE does with the merges of a word.
TEST(RankQueue, EqualsASortedMap) {
  std::mt19937 random(1);  // NOLINT: the same draws in every run
  const auto draw = [&random](uint32_t bound) { return static_cast<uint32_t>(random()) % bound; };
  for (const uint32_t spread : {1U, 8U, 1000U, 1U << 30}) {
    RankQueue queue;
    std::map<uint32_t, std::vector<uint32_t>> expected;
    uint32_t last = 0;
    for (uint32_t step = 0; step < 2000; ++step) {
      for (uint32_t pushes = draw(3); pushes > 0; --pushes) {
        const uint32_t rank = last + std::min(draw(spread), std::numeric_limits<uint32_t>::max() - last);
        const uint32_t position = draw(100'000);
        queue.push(rank, position);
        expected[rank].push_back(position);
      }
      uint32_t rank = 0;
      std::vector<uint32_t> positions;
      ASSERT_EQ(queue.pop(rank, positions), !expected.empty());
      if (expected.empty()) {
        continue;
      }
      auto lowest = expected.extract(expected.begin());
      std::ranges::sort(lowest.mapped());
      ASSERT_EQ(rank, lowest.key());
      ASSERT_EQ(positions, lowest.mapped());
      last = rank;
    }
  }
}

}  // namespace
}  // namespace kipp
