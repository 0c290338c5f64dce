// The prefix index: what makes two blocks the same, and, beside a naive model, which are found and which evicted.
#include "kv/prefix_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <tuple>

namespace kipp {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

uint64_t same_hash(uint64_t /*parent*/, std::span<const int32_t> /*tokens*/, uint32_t /*generated_rows*/) {
  return 1;
}

std::vector<int32_t> iota(int32_t count, int32_t first = 0) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

PrefixChain prompt(const std::vector<int32_t>& tokens, std::string_view salt = "") {
  return {tokens, static_cast<int32_t>(tokens.size()), salt};
}

// A table whose full blocks are indexed; its blocks may become those of an earlier one.
BlockTable computed(BlockPool& pool, PrefixIndex& index, const PrefixChain& chain) {
  BlockTable table(pool);
  EXPECT_TRUE(table.grow(static_cast<int32_t>(chain.tokens.size())));
  for (int32_t i = 0; i < static_cast<int32_t>(chain.tokens.size()) / kBlockPositions; ++i) {
    const int32_t block = table.blocks()[static_cast<size_t>(i)];
    const int32_t indexed = index.insert(chain, table.blocks().first(static_cast<size_t>(i)), block);
    if (indexed != block) {
      pool.release(table.exchange(i, indexed));
    }
  }
  EXPECT_TRUE(index.check_invariants());
  return table;
}

// Every rule holds with a good hash, and with one that tells nothing apart.
class PrefixIndexTest : public testing::TestWithParam<BlockHash> {
 protected:
  BlockPool pool_{16};
  PrefixIndex index_{pool_, "model", GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Hashes, PrefixIndexTest, testing::Values(hash_block, same_hash));

TEST_P(PrefixIndexTest, FindsTheLongestPrefixOfWholeBlocks) {
  const auto tokens = iota(100);
  const BlockTable table = computed(pool_, index_, prompt(tokens));
  EXPECT_EQ(index_.num_blocks(), 3);  // the last four tokens fill no block
  EXPECT_THAT(index_.find(prompt(tokens), {}, 99), ElementsAre(0, 1, 2));
  EXPECT_THAT(index_.find(prompt(iota(95)), {}, 99), ElementsAre(0, 1));
  EXPECT_THAT(index_.find(prompt(iota(31)), {}, 99), IsEmpty());
  auto other = tokens;
  other[40] = 7;
  EXPECT_THAT(index_.find(prompt(other), {}, 99), ElementsAre(0));
  other[31] = 7;
  EXPECT_THAT(index_.find(prompt(other), {}, 99), IsEmpty());
}

TEST_P(PrefixIndexTest, FindsNoMoreBlocksThanAskedForAndGoesOnBehindThoseHeld) {
  const auto tokens = iota(128);
  const BlockTable table = computed(pool_, index_, prompt(tokens));
  EXPECT_THAT(index_.find(prompt(tokens), {}, 0), IsEmpty());
  EXPECT_THAT(index_.find(prompt(tokens), {}, 2), ElementsAre(0, 1));
  EXPECT_THAT(index_.find(prompt(tokens), table.blocks().first(1), 3), ElementsAre(1, 2));
  EXPECT_THAT(index_.find(prompt(tokens), table.blocks().first(3), 2), IsEmpty());
}

TEST_P(PrefixIndexTest, ABlockIsFoundOnlyBehindTheSameChain) {
  auto first = iota(64);
  const BlockTable table = computed(pool_, index_, prompt(first));
  auto second = first;
  second[0] = 99;  // its second block has the same tokens as the first's
  const BlockTable other = computed(pool_, index_, prompt(second));
  EXPECT_THAT(index_.find(prompt(second), {}, 99), ElementsAre(2, 3));
  const std::vector<int32_t> tail(first.begin() + 32, first.end());
  EXPECT_THAT(index_.find(prompt(tail), {}, 99), IsEmpty());
}

TEST_P(PrefixIndexTest, OtherSaltsShareNothing) {
  const auto tokens = iota(64);
  const BlockTable a = computed(pool_, index_, prompt(tokens, "a"));
  EXPECT_THAT(index_.find(prompt(tokens, "a"), {}, 99), ElementsAre(0, 1));
  EXPECT_THAT(index_.find(prompt(tokens, "b"), {}, 99), IsEmpty());
  EXPECT_THAT(index_.find(prompt(tokens), {}, 99), IsEmpty());
  const BlockTable b = computed(pool_, index_, prompt(tokens, "b"));
  EXPECT_THAT(index_.find(prompt(tokens, "b"), {}, 99), ElementsAre(2, 3));
}

TEST_P(PrefixIndexTest, TheRowClassOfEveryRowIsPartOfTheKey) {
  const auto tokens = iota(64);
  const BlockTable table = computed(pool_, index_, {tokens, 40, ""});
  EXPECT_THAT(index_.find({tokens, 40, ""}, {}, 99), ElementsAre(0, 1));
  EXPECT_THAT(index_.find({tokens, 41, ""}, {}, 99), ElementsAre(0));
  EXPECT_THAT(index_.find({tokens, 39, ""}, {}, 99), ElementsAre(0));
  EXPECT_THAT(index_.find({tokens, 64, ""}, {}, 99), ElementsAre(0));
  EXPECT_THAT(index_.find({tokens, 32, ""}, {}, 99), ElementsAre(0));
  EXPECT_THAT(index_.find({tokens, 31, ""}, {}, 99), IsEmpty());
  EXPECT_THAT(index_.find({tokens, 0, ""}, {}, 99), IsEmpty());
}

TEST_P(PrefixIndexTest, ASecondBlockOfTheSameContentGivesWay) {
  const auto tokens = iota(70);
  const BlockTable first = computed(pool_, index_, prompt(tokens));
  const BlockTable second = computed(pool_, index_, prompt(tokens));
  EXPECT_EQ(second.blocks()[0], first.blocks()[0]);
  EXPECT_EQ(second.blocks()[1], first.blocks()[1]);
  EXPECT_NE(second.blocks()[2], first.blocks()[2]);
  EXPECT_EQ(index_.num_blocks(), 2);
  EXPECT_EQ(pool_.num_free(), 12);
}

TEST_P(PrefixIndexTest, UnusedBlocksAreFreeAndFoundUntilTheyAreNeeded) {
  const auto tokens = iota(96);
  {
    const BlockTable table = computed(pool_, index_, prompt(tokens));
  }
  EXPECT_EQ(pool_.num_free(), 16);
  EXPECT_EQ(pool_.num_cached(), 3);
  BlockTable others(pool_);
  ASSERT_TRUE(others.grow(13 * 32));
  EXPECT_THAT(index_.find(prompt(tokens), {}, 99), ElementsAre(0, 1, 2));
  ASSERT_TRUE(others.grow(14 * 32));
  EXPECT_THAT(index_.find(prompt(tokens), {}, 99), ElementsAre(0, 1));  // the end of the chain goes first
  ASSERT_TRUE(others.grow(15 * 32));
  EXPECT_THAT(index_.find(prompt(tokens), {}, 99), ElementsAre(0));
  ASSERT_TRUE(others.grow(16 * 32));
  EXPECT_THAT(index_.find(prompt(tokens), {}, 99), IsEmpty());
  EXPECT_EQ(index_.num_blocks(), 0);
  EXPECT_TRUE(index_.check_invariants());
}

TEST_P(PrefixIndexTest, TheLeastRecentlyUsedChainGoesFirst) {
  const auto old = iota(32, 100);
  const auto used = iota(32, 200);
  {
    const BlockTable table = computed(pool_, index_, prompt(used));
  }
  {
    const BlockTable table = computed(pool_, index_, prompt(old));
  }
  {
    BlockTable again(pool_);
    again.share(index_.find(prompt(used), {}, 99).front());
  }
  BlockTable others(pool_);
  ASSERT_TRUE(others.grow(15 * 32));
  EXPECT_THAT(index_.find(prompt(old), {}, 99), IsEmpty());
  EXPECT_EQ(index_.find(prompt(used), {}, 99).size(), 1U);
}

TEST_P(PrefixIndexTest, AnIndexThatEndsLeavesAnOrdinaryPool) {
  BlockPool pool(4);
  const auto tokens = iota(64);
  BlockTable held(pool);
  {
    PrefixIndex index(pool, "model", GetParam());
    held = computed(pool, index, prompt(tokens));
    const BlockTable unused = computed(pool, index, prompt(iota(32, 9)));
  }
  EXPECT_EQ(pool.num_cached(), 0);
  EXPECT_EQ(pool.num_free(), 2);
  EXPECT_TRUE(held.grow(128));
}

std::set<uint64_t> seen_parents;
uint64_t recording_hash(uint64_t parent, std::span<const int32_t> tokens, uint32_t generated_rows) {
  seen_parents.insert(parent);
  return hash_block(parent, tokens, generated_rows);
}

TEST(PrefixIndexHash, NameSpaceAndSaltReachTheHashOfEveryChain) {
  seen_parents.clear();
  const auto tokens = iota(32);
  for (const char* name_space : {"model a, bf16", "model b, bf16", "model a, q8_0"}) {
    for (const char* salt : {"", "x", "y"}) {
      BlockPool pool(1);
      const PrefixIndex index(pool, name_space, recording_hash);
      EXPECT_THAT(index.find(prompt(tokens, salt), {}, 1), IsEmpty());
    }
  }
  EXPECT_EQ(seen_parents.size(), 9U);
}

TEST(PrefixIndexHash, EveryTokenClassAndParentCounts) {
  const auto tokens = iota(32);
  std::set<uint64_t> hashes = {hash_block(1, tokens, 0), hash_block(2, tokens, 0), hash_block(1, tokens, 1)};
  for (size_t i = 0; i < tokens.size(); ++i) {
    auto other = tokens;
    ++other[i];
    hashes.insert(hash_block(1, other, 0));
  }
  EXPECT_EQ(hashes.size(), 35U);
}

// What the index should hold: whole chains as keys, and the order in which the last holders left.
class NaiveIndex {
 public:
  // A block's content, row by row from the first position on: salt, tokens, classes.
  using Content = std::tuple<std::string, std::vector<int32_t>, std::vector<bool>>;

  static Content content(const PrefixChain& chain, size_t num_blocks) {
    std::vector<int32_t> tokens;
    std::vector<bool> classes;
    for (size_t i = 0; i < num_blocks * 32; ++i) {
      tokens.push_back(chain.tokens[i]);
      classes.push_back(static_cast<int32_t>(i) >= chain.num_prompt_tokens);
    }
    return {std::string(chain.salt), tokens, classes};
  }

  std::vector<int32_t> find(const PrefixChain& chain) const {
    std::vector<int32_t> blocks;
    for (size_t n = 1; n * 32 <= chain.tokens.size(); ++n) {
      const auto found = blocks_.find(content(chain, n));
      if (found == blocks_.end()) {
        break;
      }
      blocks.push_back(found->second);
    }
    return blocks;
  }

  void insert(const PrefixChain& chain, size_t num_blocks, int32_t block) {
    blocks_.emplace(content(chain, num_blocks), block);
  }
  bool holds(int32_t block) const {
    return std::ranges::any_of(blocks_, [=](const auto& item) { return item.second == block; });
  }
  void left(int32_t block) {
    if (holds(block)) {
      unused_.push_back(block);
    }
  }
  void taken(int32_t block) { std::erase(unused_, block); }
  void evict_oldest() {
    const int32_t block = unused_.front();
    unused_.erase(unused_.begin());
    std::erase_if(blocks_, [=](const auto& item) { return item.second == block; });
  }
  int32_t num_unused() const { return static_cast<int32_t>(unused_.size()); }
  size_t size() const { return blocks_.size(); }

 private:
  std::map<Content, int32_t> blocks_;
  std::vector<int32_t> unused_;
};

// Sequences that come, find their prefix, compute the rest block by block, and go.
class RandomSequences {
 public:
  RandomSequences(uint64_t seed, BlockHash hash) : random_(seed), pool_(kNumBlocks, seed), index_(pool_, "m", hash) {}

  void operate() {
    if (sequences_.size() < 4 && draw(2) == 0) {
      come();
    } else if (!sequences_.empty()) {
      const size_t i = draw(sequences_.size());
      if (draw(4) == 0 || !go_on(*sequences_[i])) {
        leave(i);
      }
    }
    const auto held = index_.check_invariants();
    ASSERT_TRUE(held) << held.error().message;
    ASSERT_EQ(pool_.num_cached(), naive_.num_unused());
    ASSERT_EQ(static_cast<size_t>(index_.num_blocks()), naive_.size());
  }

 private:
  static constexpr int32_t kNumBlocks = 11;

  struct Sequence {
    std::string salt;
    std::vector<int32_t> tokens;
    int32_t num_prompt;
    BlockTable table;
    PrefixChain chain() const { return {tokens, num_prompt, salt}; }
  };

  size_t draw(size_t below) { return std::uniform_int_distribution<size_t>(0, below - 1)(random_); }

  void come() {
    auto added = std::make_unique<Sequence>(Sequence{draw(3) == 0 ? "salt" : "", {}, 0, BlockTable(pool_)});
    const size_t num_blocks = 1 + draw(4);
    for (size_t b = 0; b < num_blocks; ++b) {
      const auto tokens = iota(32, static_cast<int32_t>(draw(2)) * 100);
      added->tokens.insert(added->tokens.end(), tokens.begin(), tokens.end());
    }
    added->num_prompt = static_cast<int32_t>(draw(3) == 0 ? draw(added->tokens.size() + 1) : added->tokens.size());
    const auto found = index_.find(added->chain(), {}, 99);
    ASSERT_EQ(found, naive_.find(added->chain()));
    for (const int32_t block : found) {
      naive_.taken(block);
      added->table.share(block);
    }
    sequences_.push_back(std::move(added));
  }

  // One more block is computed. False: all are, or there is no room.
  bool go_on(Sequence& sequence) {
    const auto held = static_cast<size_t>(sequence.table.size());
    if (held * 32 == sequence.tokens.size() || pool_.num_free() == 0) {
      return false;
    }
    if (pool_.num_free() == pool_.num_cached()) {
      naive_.evict_oldest();
    }
    EXPECT_TRUE(sequence.table.grow(static_cast<int32_t>(held + 1) * 32));
    const int32_t block = sequence.table.blocks().back();
    EXPECT_FALSE(naive_.holds(block));
    const auto known = naive_.find(sequence.chain());
    const int32_t indexed = index_.insert(sequence.chain(), sequence.table.blocks().first(held), block);
    if (known.size() > held) {
      EXPECT_EQ(indexed, known[held]);
      pool_.release(sequence.table.exchange(static_cast<int32_t>(held), indexed));
      naive_.taken(indexed);
    } else {
      EXPECT_EQ(indexed, block);
      naive_.insert(sequence.chain(), held + 1, block);
    }
    return true;
  }

  void leave(size_t i) {
    const std::vector<int32_t> blocks(sequences_[i]->table.blocks().begin(), sequences_[i]->table.blocks().end());
    sequences_.erase(sequences_.begin() + static_cast<ptrdiff_t>(i));
    std::for_each(blocks.rbegin(), blocks.rend(), [this](int32_t block) {
      if (pool_.references(block) == 0) {
        naive_.left(block);
      }
    });
  }

  std::mt19937_64 random_;
  BlockPool pool_;
  PrefixIndex index_;
  NaiveIndex naive_;
  std::vector<std::unique_ptr<Sequence>> sequences_;
};

TEST(PrefixIndexRandom, AgreesWithWholeChainsInAMap) {
  for (const BlockHash hash : {hash_block, same_hash}) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      RandomSequences sequences(seed, hash);
      for (int32_t i = 0; i < 500; ++i) {
        sequences.operate();
        ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed << " operation " << i;
      }
    }
  }
}

}  // namespace
}  // namespace kipp
