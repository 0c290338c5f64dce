// Finds KV blocks by what they hold, so that a prefix that was evaluated once is not evaluated again. Integers only.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kipp/error.h"
#include "kv/block_pool.h"

namespace kipp {

// What decides the K and V of a sequence's positions, and who may share them.
struct PrefixChain {
  std::span<const int32_t> tokens;
  int32_t num_prompt_tokens;  // the row class of the first ones is prompt, of the others generated
  std::string_view salt;      // sequences of different salts share nothing; empty is a salt like any other
};

// Of one block after the chain that `parent` stands for. tokens: [32]; bit i of generated_rows: row i was generated.
using BlockHash = uint64_t (*)(uint64_t parent, std::span<const int32_t> tokens, uint32_t generated_rows);
uint64_t hash_block(uint64_t parent, std::span<const int32_t> tokens, uint32_t generated_rows);

// An index of full blocks. The key of a block is everything its bits depend on: the chain of blocks before it, its 32
// tokens, the row class of each, the salt, and the name space that all blocks of the index have in common. A hash only
// finds candidates: a hit has compared the whole chain. One index a pool, which keeps the indexed blocks.
//
// Whoever holds an indexed block holds the indexed blocks before it too (insert() says which these are), so that the
// pool, which takes the block whose last holder left first, evicts the end of a chain before its beginning.
class PrefixIndex {
 public:
  // name_space: what blocks of other models must differ in: the artifact's hash, the type of K and V. The pool outlives
  // the index.
  PrefixIndex(BlockPool& pool, std::string_view name_space, BlockHash hash = hash_block);
  ~PrefixIndex();
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;

  // The blocks that go on behind `held`, which are the chain's first ones as find() or insert() returned them: as many
  // of the chain as are indexed, but at most max_blocks with the held ones. Nothing is retained: BlockTable::share
  // does.
  std::vector<int32_t> find(const PrefixChain& chain, std::span<const int32_t> held, int32_t max_blocks) const;

  // Makes a block in use findable. It holds the chain's 32 positions after those of `parents`, which are indexed.
  // Returns the block that the index has for this content: `block`, or an earlier one that takes its place.
  int32_t insert(const PrefixChain& chain, std::span<const int32_t> parents, int32_t block);

  int32_t num_blocks() const { return num_blocks_; }  // indexed, in use or not

  // For tests: parents, counts and hashes agree with each other and with the pool. Errors: kInternal.
  Result<void> check_invariants() const;

 private:
  static constexpr int32_t kNone = -1;

  struct Entry {
    bool is_indexed = false;
    uint64_t hash = 0;
    int32_t parent = kNone;
    int32_t num_children = 0;
    uint32_t generated_rows = 0;
    std::array<int32_t, kBlockPositions> tokens = {};
    std::string salt = {};  // of a first block; the others' is that of their chain
  };

  // What block `index` of a chain would be called.
  struct Key {
    uint64_t hash;
    int32_t parent;
    uint32_t generated_rows;
    std::span<const int32_t> tokens;  // [32]
    std::string_view salt;            // of a first block
  };

  Key key(const PrefixChain& chain, int32_t parent, int32_t index) const;
  int32_t lookup(const Key& key) const;  // kNone: not indexed
  bool matches(const Entry& entry, const Key& key) const;
  void remove(int32_t block);
  Entry& entry(int32_t block) { return entries_[static_cast<size_t>(block)]; }
  const Entry& entry(int32_t block) const { return entries_[static_cast<size_t>(block)]; }

  BlockPool* pool_;
  std::string name_space_;
  BlockHash hash_;
  std::vector<Entry> entries_;                          // [pool's blocks]
  std::unordered_multimap<uint64_t, int32_t> by_hash_;  // blocks
  int32_t num_blocks_ = 0;
};

}  // namespace kipp
