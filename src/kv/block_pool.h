// Blocks of 32 positions: integers only, no tensors, no device.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <span>
#include <vector>

#include "base/block_positions.h"
#include "kipp/error.h"

namespace kipp {

// Blocks that hold positions [0, length).
constexpr int32_t blocks_for(int32_t length) {
  return length / kBlockPositions + (length % kBlockPositions != 0 ? 1 : 0);
}

// Hands out block ids 0 … num_blocks-1, reference-counted, so that sequences can share a prefix. A block may be kept:
// without references it is free like any other, but its content stands until the pool has no blank block left.
class BlockPool {
 public:
  using EvictionCallback = std::function<void(int32_t block)>;

  // placement_seed: 0 hands a fresh pool's blocks out in ascending order, any other value in an order drawn from it
  // (placement must not matter: tests scramble it).
  explicit BlockPool(int32_t num_blocks, uint64_t placement_seed = 0);

  // A block with one reference: a blank one, or else the kept one whose last reference went first. Errors: kCapacity
  // naming the size of the pool.
  Result<int32_t> allocate();
  // One more reference to a block that has some, or is kept.
  void retain(int32_t block);
  // Gives one reference back; at zero the block is free. Unknown or free blocks are programmer errors (checked).
  void release(int32_t block);

  // Keeps the content of a block in use for later (prefix_index.h), until it is forgotten or handed out again.
  void keep(int32_t block);
  void forget(int32_t block);
  bool is_kept(int32_t block) const { return kept_[checked(block)]; }
  // Told of every kept block that allocate() is about to hand out. Empty: nobody.
  void on_eviction(EvictionCallback callback) { on_eviction_ = std::move(callback); }

  int32_t num_blocks() const { return static_cast<int32_t>(references_.size()); }
  // Blocks without references: what allocate() can hand out, kept ones included.
  int32_t num_free() const { return static_cast<int32_t>(blank_.size() + unused_.size()); }
  int32_t num_cached() const { return static_cast<int32_t>(unused_.size()); }  // of these, the kept ones
  int32_t references(int32_t block) const { return references_[checked(block)]; }

 private:
  size_t checked(int32_t block) const;

  std::vector<int32_t> references_;                  // [num_blocks]
  std::vector<bool> kept_;                           // [num_blocks]
  std::vector<int32_t> blank_;                       // stack: the block freed last is handed out first
  std::list<int32_t> unused_;                        // kept blocks without references, least recently used first
  std::vector<std::list<int32_t>::iterator> place_;  // [num_blocks] where in unused_, if it is there
  EvictionCallback on_eviction_;
};

// The blocks of one sequence in position order. Grows by whole blocks, shrinks on truncation, never leaks on error.
class BlockTable {
 public:
  explicit BlockTable(BlockPool& pool) : pool_(&pool) {}
  ~BlockTable() { shrink(0); }
  BlockTable(BlockTable&& other) noexcept;
  BlockTable& operator=(BlockTable&& other) noexcept;
  BlockTable(const BlockTable&) = delete;
  BlockTable& operator=(const BlockTable&) = delete;

  // Adds a block that the pool already counts for another holder, or keeps, after the blocks held: how a shared prefix
  // begins.
  void share(int32_t block);
  // Puts a block of the same content in the place of one held. The reference to the old one is the caller's to release.
  int32_t exchange(int32_t index, int32_t block);
  // Makes room for positions [0, length). On error (kCapacity, with blocks needed and free) nothing changes.
  Result<void> grow(int32_t length);
  // Gives back every block that holds no position below length, the last one first: of kept blocks, a chain's end is
  // then evicted before its beginning.
  void shrink(int32_t length);
  std::span<const int32_t> blocks() const { return blocks_; }
  int32_t size() const { return static_cast<int32_t>(blocks_.size()); }

 private:
  BlockPool* pool_;
  std::vector<int32_t> blocks_;
};

}  // namespace kipp
