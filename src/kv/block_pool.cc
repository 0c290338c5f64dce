// Reference counts, a stack of blank blocks and a queue of kept ones; tables that give back what they hold.
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
  const auto count = static_cast<size_t>(num_blocks);
  references_.resize(count, 0);
  kept_.resize(count, false);
  place_.resize(count);
  blank_.resize(count);
  std::iota(blank_.rbegin(), blank_.rend(), 0);  // the top of the stack is block 0
  if (placement_seed != 0) {
    shuffle(blank_, placement_seed);
  }
}

size_t BlockPool::checked(int32_t block) const {
  KIPP_CHECK(block >= 0 && block < num_blocks());
  return static_cast<size_t>(block);
}

Result<int32_t> BlockPool::allocate() {
  if (num_free() == 0) {
    return make_error(ErrorCode::kCapacity, fmt::format("all {} KV blocks are in use", num_blocks()));
  }
  if (blank_.empty()) {
    const int32_t oldest = unused_.front();
    if (on_eviction_) {
      on_eviction_(oldest);
    }
    forget(oldest);
  }
  const int32_t block = blank_.back();
  blank_.pop_back();
  references_[checked(block)] = 1;
  return block;
}

void BlockPool::retain(int32_t block) {
  const size_t b = checked(block);
  KIPP_CHECK(references_[b] > 0 || kept_[b]);
  if (references_[b]++ == 0) {
    unused_.erase(place_[b]);
  }
}

void BlockPool::release(int32_t block) {
  const size_t b = checked(block);
  KIPP_CHECK(references_[b] > 0);
  if (--references_[b] > 0) {
    return;
  }
  if (kept_[b]) {
    place_[b] = unused_.insert(unused_.end(), block);
  } else {
    blank_.push_back(block);
    if (seeded(Fault::kBlockHandedOutTwice)) blank_.push_back(block);
  }
}

void BlockPool::keep(int32_t block) {
  const size_t b = checked(block);
  KIPP_CHECK(references_[b] > 0 && !kept_[b]);
  kept_[b] = true;
}

void BlockPool::forget(int32_t block) {
  const size_t b = checked(block);
  KIPP_CHECK(kept_[b]);
  kept_[b] = false;
  if (references_[b] == 0) {
    unused_.erase(place_[b]);
    blank_.push_back(block);
  }
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

int32_t BlockTable::exchange(int32_t index, int32_t block) {
  KIPP_CHECK(index >= 0 && index < size());
  pool_->retain(block);
  return std::exchange(blocks_[static_cast<size_t>(index)], block);
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
