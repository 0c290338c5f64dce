// Reference counts and a stack of free ids; tables that give back what they hold.
#include "kv/block_pool.h"

#include <fmt/format.h>

#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/seeded_fault.h"

namespace kipp {
namespace {

// Fisher-Yates driven by splitmix64: the same order on every machine.
void shuffle(std::vector<int32_t>& values, uint64_t seed) {
  for (size_t left = values.size(); left > 1; --left) {
    seed += 0x9E3779B97F4A7C15U;
    uint64_t draw = seed;
    draw = (draw ^ (draw >> 30)) * 0xBF58476D1CE4E5B9U;
    draw = (draw ^ (draw >> 27)) * 0x94D049BB133111EBU;
    std::swap(values[left - 1], values[(draw ^ (draw >> 31)) % left]);
  }
}

}  // namespace

BlockPool::BlockPool(int32_t num_blocks, uint64_t placement_seed) {
  KIPP_CHECK(num_blocks >= 0);
  references_.resize(static_cast<size_t>(num_blocks), 0);
  free_.resize(static_cast<size_t>(num_blocks));
  std::iota(free_.rbegin(), free_.rend(), 0);  // the top of the stack is block 0
  if (placement_seed != 0) {
    shuffle(free_, placement_seed);
  }
}

Result<int32_t> BlockPool::allocate() {
  if (free_.empty()) {
    return make_error(ErrorCode::kCapacity, fmt::format("all {} KV blocks are in use", num_blocks()));
  }
  const int32_t block = free_.back();
  free_.pop_back();
  references_[static_cast<size_t>(block)] = 1;
  return block;
}

void BlockPool::retain(int32_t block) {
  KIPP_CHECK(references(block) > 0);
  ++references_[static_cast<size_t>(block)];
}

void BlockPool::release(int32_t block) {
  KIPP_CHECK(references(block) > 0);
  if (--references_[static_cast<size_t>(block)] == 0) {
    free_.push_back(block);
    if (seeded(Fault::kBlockHandedOutTwice)) free_.push_back(block);
  }
}

int32_t BlockPool::references(int32_t block) const {
  KIPP_CHECK(block >= 0 && block < num_blocks());
  return references_[static_cast<size_t>(block)];
}

BlockTable::BlockTable(BlockTable&& other) noexcept : pool_(other.pool_), blocks_(std::exchange(other.blocks_, {})) {}

BlockTable& BlockTable::operator=(BlockTable&& other) noexcept {
  if (this != &other) {
    shrink(0);
    pool_ = other.pool_;
    blocks_ = std::exchange(other.blocks_, {});
  }
  return *this;
}

void BlockTable::share(int32_t block) {
  pool_->retain(block);
  blocks_.push_back(block);
}

Result<void> BlockTable::grow(int32_t length) {
  KIPP_CHECK(length >= 0);
  const int64_t missing = int64_t{blocks_for(length)} - static_cast<int64_t>(blocks_.size());
  if (missing > pool_->num_free()) {
    return make_error(ErrorCode::kCapacity,
                      fmt::format("{} positions need {} more KV blocks of {} positions, but {} of {} are free", length,
                                  missing, kBlockPositions, pool_->num_free(), pool_->num_blocks()));
  }
  for (int64_t i = 0; i < missing; ++i) {
    KIPP_ASSIGN(const int32_t block, pool_->allocate());
    blocks_.push_back(block);
  }
  return {};
}

void BlockTable::shrink(int32_t length) {
  KIPP_CHECK(length >= 0);
  while (blocks_.size() > static_cast<size_t>(blocks_for(length))) {
    pool_->release(blocks_.back());
    blocks_.pop_back();
  }
}

}  // namespace kipp
