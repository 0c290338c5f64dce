// The block pool and tables against a naive model, under random operations.
#include "kv/block_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>

namespace kipp {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(BlocksForTest, RoundsUpToWholeBlocks) {
  EXPECT_EQ(blocks_for(0), 0);
  EXPECT_EQ(blocks_for(1), 1);
  EXPECT_EQ(blocks_for(32), 1);
  EXPECT_EQ(blocks_for(33), 2);
  EXPECT_EQ(blocks_for(262144), 8192);
  EXPECT_EQ(blocks_for(2147483647), 67108864);
}

TEST(BlockPoolTest, HandsOutEveryBlockOnceThenFails) {
  for (const uint64_t seed : {0U, 1U, 99U}) {
    BlockPool pool(40, seed);
    std::set<int32_t> blocks;
    for (int32_t i = 0; i < 40; ++i) {
      EXPECT_EQ(pool.num_free(), 40 - i);
      const auto block = pool.allocate();
      ASSERT_TRUE(block);
      EXPECT_EQ(pool.references(*block), 1);
      blocks.insert(*block);
    }
    EXPECT_EQ(blocks.size(), 40U);
    EXPECT_EQ(*blocks.begin(), 0);
    EXPECT_EQ(*blocks.rbegin(), 39);
    const auto none = pool.allocate();
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().code, ErrorCode::kCapacity);
    EXPECT_THAT(none.error().message, HasSubstr("40"));
  }
}

TEST(BlockPoolTest, APlacementSeedScramblesTheOrder) {
  const auto order = [](uint64_t seed) {
    BlockPool pool(64, seed);
    std::vector<int32_t> blocks;
    while (pool.num_free() > 0) {
      blocks.push_back(*pool.allocate());
    }
    return blocks;
  };
  std::vector<int32_t> ascending(64);
  std::iota(ascending.begin(), ascending.end(), 0);
  EXPECT_EQ(order(0), ascending);
  EXPECT_NE(order(1), ascending);
  EXPECT_NE(order(1), order(2));
  EXPECT_EQ(order(7), order(7));
}

TEST(BlockPoolTest, TheBlockFreedLastIsHandedOutFirst) {
  BlockPool pool(3);
  const int32_t a = *pool.allocate();
  const int32_t b = *pool.allocate();
  pool.release(a);
  pool.release(b);
  EXPECT_EQ(*pool.allocate(), b);
  EXPECT_EQ(*pool.allocate(), a);
}

TEST(BlockPoolDeathTest, ReleasingOrRetainingAFreeOrUnknownBlockIsChecked) {
  BlockPool pool(2);
  const int32_t block = *pool.allocate();
  pool.release(block);
  EXPECT_DEATH(pool.release(block), "check failed");
  EXPECT_DEATH(pool.retain(block), "check failed");
  EXPECT_DEATH(pool.release(2), "check failed");
  EXPECT_DEATH(pool.retain(-1), "check failed");
}

TEST(BlockPoolTest, AKeptBlockIsFreeAndHandedOutLast) {
  BlockPool pool(3);
  const int32_t kept = *pool.allocate();
  pool.keep(kept);
  EXPECT_TRUE(pool.is_kept(kept));
  pool.release(kept);
  EXPECT_EQ(pool.num_free(), 3);
  EXPECT_EQ(pool.num_cached(), 1);
  EXPECT_NE(*pool.allocate(), kept);
  EXPECT_NE(*pool.allocate(), kept);
  EXPECT_EQ(pool.num_free(), 1);
  EXPECT_EQ(*pool.allocate(), kept);  // rather than an error
  EXPECT_FALSE(pool.is_kept(kept));
  EXPECT_EQ(pool.num_cached(), 0);
  EXPECT_FALSE(pool.allocate());
}

TEST(BlockPoolTest, TheKeptBlockWhoseLastHolderLeftFirstIsEvictedFirst) {
  BlockPool pool(3);
  std::vector<int32_t> evicted;
  pool.on_eviction([&](int32_t block) { evicted.push_back(block); });
  for (int32_t i = 0; i < 3; ++i) {
    pool.keep(*pool.allocate());
  }
  pool.release(2);
  pool.release(0);
  pool.release(1);
  pool.retain(2);  // used once more, and left last
  pool.release(2);
  EXPECT_EQ(*pool.allocate(), 0);
  EXPECT_EQ(*pool.allocate(), 1);
  EXPECT_EQ(*pool.allocate(), 2);
  EXPECT_THAT(evicted, ElementsAre(0, 1, 2));
}

TEST(BlockPoolTest, RetainingTakesAKeptBlockUpAgain) {
  BlockPool pool(2);
  const int32_t kept = *pool.allocate();
  pool.keep(kept);
  pool.release(kept);
  pool.retain(kept);
  EXPECT_EQ(pool.references(kept), 1);
  EXPECT_EQ(pool.num_cached(), 0);
  EXPECT_EQ(pool.num_free(), 1);
  pool.forget(kept);  // in use: nothing but the mark goes
  EXPECT_EQ(pool.references(kept), 1);
  pool.release(kept);
  EXPECT_EQ(pool.num_cached(), 0);
  EXPECT_EQ(pool.num_free(), 2);
}

TEST(BlockPoolDeathTest, OnlyBlocksInUseAreKeptAndOnlyKeptOnesForgotten) {
  BlockPool pool(2);
  EXPECT_DEATH(pool.keep(0), "check failed");
  EXPECT_DEATH(pool.forget(0), "check failed");
  EXPECT_DEATH(pool.retain(0), "check failed");
  pool.keep(*pool.allocate());
  EXPECT_DEATH(pool.keep(0), "check failed");
}

TEST(BlockTableTest, ShrinkingEvictsTheEndOfAChainBeforeItsBeginning) {
  BlockPool pool(3);
  {
    BlockTable table(pool);
    ASSERT_TRUE(table.grow(96));
    for (const int32_t block : table.blocks()) {
      pool.keep(block);
    }
  }
  EXPECT_EQ(*pool.allocate(), 2);
  EXPECT_EQ(*pool.allocate(), 1);
  EXPECT_EQ(*pool.allocate(), 0);
}

TEST(BlockTableTest, ExchangingGivesTheOldReferenceToTheCaller) {
  BlockPool pool(4);
  BlockTable table(pool);
  ASSERT_TRUE(table.grow(64));
  BlockTable other(pool);
  ASSERT_TRUE(other.grow(32));
  EXPECT_EQ(table.exchange(0, 2), 0);
  EXPECT_THAT(table.blocks(), ElementsAre(2, 1));
  EXPECT_EQ(pool.references(2), 2);
  EXPECT_EQ(pool.references(0), 1);
  pool.release(0);
  EXPECT_EQ(pool.num_free(), 2);
}

TEST(BlockTableTest, GrowsByWholeBlocksAndKeepsWhatItHas) {
  BlockPool pool(4);
  BlockTable table(pool);
  ASSERT_TRUE(table.grow(1));
  EXPECT_THAT(table.blocks(), ElementsAre(0));
  ASSERT_TRUE(table.grow(32));
  EXPECT_THAT(table.blocks(), ElementsAre(0));
  ASSERT_TRUE(table.grow(65));
  EXPECT_THAT(table.blocks(), ElementsAre(0, 1, 2));
  ASSERT_TRUE(table.grow(3));  // never shrinks
  EXPECT_THAT(table.blocks(), ElementsAre(0, 1, 2));
  table.shrink(33);
  EXPECT_THAT(table.blocks(), ElementsAre(0, 1));
  table.shrink(0);
  EXPECT_EQ(pool.num_free(), 4);
}

TEST(BlockTableTest, AFailedGrowthChangesNothingAndSaysWhatIsMissing) {
  BlockPool pool(3);
  BlockTable other(pool);
  ASSERT_TRUE(other.grow(32));
  BlockTable table(pool);
  ASSERT_TRUE(table.grow(10));
  const auto grown = table.grow(100);
  ASSERT_FALSE(grown);
  EXPECT_EQ(grown.error().code, ErrorCode::kCapacity);
  EXPECT_THAT(grown.error().message, HasSubstr("100 positions need 3 more"));
  EXPECT_THAT(grown.error().message, HasSubstr("1 of 3 are free"));
  EXPECT_EQ(table.blocks().size(), 1U);
  EXPECT_EQ(pool.num_free(), 1);
}

TEST(BlockTableTest, MovesCarryTheBlocksAndDestructionGivesThemBack) {
  BlockPool pool(5);
  {
    BlockTable a(pool);
    ASSERT_TRUE(a.grow(64));
    BlockTable b = std::move(a);
    EXPECT_EQ(pool.num_free(), 3);
    BlockTable c(pool);
    ASSERT_TRUE(c.grow(40));
    EXPECT_EQ(pool.num_free(), 1);
    c = std::move(b);  // gives back what c held
    EXPECT_EQ(pool.num_free(), 3);
    EXPECT_THAT(c.blocks(), ElementsAre(0, 1));
  }
  EXPECT_EQ(pool.num_free(), 5);
}

// A pool of a few tables that grow, shrink, share prefixes, move and die, beside a model that only counts.
class RandomTables {
 public:
  explicit RandomTables(uint64_t seed) : random_(seed), pool_(kNumBlocks, seed) {
    for (size_t i = 0; i < kNumTables; ++i) {
      tables_.emplace_back(pool_);
    }
    model_.resize(kNumTables);
  }

  void step() {
    const size_t i = draw(kNumTables);
    BlockTable& table = tables_[i];
    std::vector<int32_t>& held = model_[i];
    switch (draw(4)) {
      case 0: grow(table, held); break;
      case 1: {
        const auto length = static_cast<int32_t>(draw(300));
        table.shrink(length);
        held.resize(std::min(held.size(), static_cast<size_t>((length + 31) / 32)));
        break;
      }
      case 2: {  // starts over with a prefix of another table
        const size_t from = draw(kNumTables);
        if (from != i) {
          table = BlockTable(pool_);
          held.assign(model_[from].begin(),
                      model_[from].begin() + static_cast<ptrdiff_t>(draw(model_[from].size() + 1)));
          for (const int32_t block : held) {
            table.share(block);
          }
        }
        break;
      }
      default: {
        const size_t other = draw(kNumTables);
        if (other != i) {
          tables_[other] = std::move(table);
          table = BlockTable(pool_);
          model_[other] = std::exchange(held, {});
        }
      }
    }
    check();
  }

 private:
  static constexpr int32_t kNumBlocks = 23;
  static constexpr size_t kNumTables = 5;

  size_t draw(size_t below) { return std::uniform_int_distribution<size_t>(0, below - 1)(random_); }

  void grow(BlockTable& table, std::vector<int32_t>& held) {
    const auto length = static_cast<int32_t>(draw(300));
    const auto needed = static_cast<size_t>((length + 31) / 32);
    const size_t missing = needed > held.size() ? needed - held.size() : 0;
    const bool fits = missing <= static_cast<size_t>(kNumBlocks) - counts().size();
    ASSERT_EQ(table.grow(length).has_value(), fits);
    if (fits) {
      const auto known = counts();
      for (size_t b = held.size(); b < needed; ++b) {
        ASSERT_FALSE(known.contains(table.blocks()[b])) << "handed out a block in use";
        held.push_back(table.blocks()[b]);
      }
    }
  }

  std::map<int32_t, int32_t> counts() const {
    std::map<int32_t, int32_t> counts;
    for (const auto& held : model_) {
      for (const int32_t block : held) {
        ++counts[block];
      }
    }
    return counts;
  }

  void check() const {
    const auto expected = counts();
    for (size_t i = 0; i < kNumTables; ++i) {
      ASSERT_TRUE(std::ranges::equal(tables_[i].blocks(), model_[i])) << "table " << i;
    }
    for (int32_t block = 0; block < kNumBlocks; ++block) {
      const auto found = expected.find(block);
      ASSERT_EQ(pool_.references(block), found == expected.end() ? 0 : found->second) << "block " << block;
    }
    ASSERT_EQ(pool_.num_free(), kNumBlocks - static_cast<int32_t>(expected.size()));
  }

  std::mt19937_64 random_;
  BlockPool pool_;
  std::vector<BlockTable> tables_;
  std::vector<std::vector<int32_t>> model_;  // [kNumTables] the blocks that each table should hold
};

TEST(BlockTableTest, RandomOperationsKeepEveryReference) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    RandomTables tables(seed);
    for (int32_t i = 0; i < 1000; ++i) {
      tables.step();
      ASSERT_FALSE(testing::Test::HasFatalFailure()) << "seed " << seed << " operation " << i;
    }
  }
}

}  // namespace
}  // namespace kipp
