// Blocks of 32 positions: integers only, no tensors, no device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/block_positions.h"
#include "kipp/error.h"

namespace kipp {

// Blocks that hold positions [0, length).
constexpr int32_t blocks_for(int32_t length) {
  return length / kBlockPositions + (length % kBlockPositions != 0 ? 1 : 0);
}

// Hands out block ids 0 … num_blocks-1, reference-counted, so that sequences can share a prefix.
class BlockPool {
 public:
  // placement_seed: 0 hands a fresh pool's blocks out in ascending order, any other value in an order drawn from it
  // (placement must not matter: tests scramble it).
  explicit BlockPool(int32_t num_blocks, uint64_t placement_seed = 0);

  // A block with one reference. Errors: kCapacity naming the size of the pool.
  Result<int32_t> allocate();
  void retain(int32_t block);
  // Gives one reference back; at zero the block is free. Unknown or free blocks are programmer errors (checked).
  void release(int32_t block);

  int32_t num_blocks() const { return static_cast<int32_t>(references_.size()); }
  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }
  int32_t references(int32_t block) const;

 private:
  std::vector<int32_t> references_;  // [num_blocks]
  std::vector<int32_t> free_;        // stack: the block freed last is handed out first
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

  // Adds a block that the pool already counts for another holder, after the blocks held: how a shared prefix begins.
  void share(int32_t block);
  // Makes room for positions [0, length). On error (kCapacity, with blocks needed and free) nothing changes.
  Result<void> grow(int32_t length);
  // Gives back every block that holds no position below length.
  void shrink(int32_t length);
  std::span<const int32_t> blocks() const { return blocks_; }

 private:
  BlockPool* pool_;
  std::vector<int32_t> blocks_;
};

}  // namespace kipp
