// A map from hashes to blocks, and what each of them holds, to compare.
#include "kv/prefix_index.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace kipp {
namespace {

// The finaliser of splitmix64.
uint64_t mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9U;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBU;
  return value ^ (value >> 31);
}

uint64_t combine(uint64_t state, uint64_t value) {
  return mix(state * 0x9E3779B97F4A7C15U + value + 1);
}

uint64_t hash_text(uint64_t state, std::string_view text) {
  state = combine(state, text.size());
  for (const char c : text) {
    state = combine(state, static_cast<unsigned char>(c));
  }
  return state;
}

// Bit i: row i of block `index` is behind the prompt.
uint32_t generated_rows(const PrefixChain& chain, int32_t index) {
  const int32_t num_prompt = std::clamp(chain.num_prompt_tokens - index * kBlockPositions, 0, kBlockPositions);
  return num_prompt == kBlockPositions ? 0U : ~uint32_t{0} << num_prompt;
}

tl::unexpected<Error> broken(int32_t block, std::string_view what) {
  return make_error(ErrorCode::kInternal, fmt::format("prefix index: block {} {}", block, what));
}

}  // namespace

static_assert(kBlockPositions == 32, "one bit a row");

uint64_t hash_block(uint64_t parent, std::span<const int32_t> tokens, uint32_t generated_rows) {
  uint64_t state = combine(parent, generated_rows);
  for (const int32_t token : tokens) {
    state = combine(state, static_cast<uint32_t>(token));
  }
  return state;
}

PrefixIndex::PrefixIndex(BlockPool& pool, std::string_view name_space, BlockHash hash)
    : pool_(&pool), name_space_(name_space), hash_(hash), entries_(static_cast<size_t>(pool.num_blocks())) {
  pool.on_eviction([this](int32_t block) { remove(block); });
}

PrefixIndex::~PrefixIndex() {
  pool_->on_eviction({});
  for (int32_t block = 0; block < pool_->num_blocks(); ++block) {
    if (entry(block).is_indexed) {
      pool_->forget(block);
    }
  }
}

PrefixIndex::Key PrefixIndex::key(const PrefixChain& chain, int32_t parent, int32_t index) const {
  const auto begin = static_cast<size_t>(index) * kBlockPositions;
  const uint64_t before = parent == kNone ? hash_text(hash_text(0, name_space_), chain.salt) : entry(parent).hash;
  Key key{.hash = 0,
          .parent = parent,
          .generated_rows = generated_rows(chain, index),
          .tokens = chain.tokens.subspan(begin, kBlockPositions),
          .salt = parent == kNone ? chain.salt : std::string_view()};
  key.hash = hash_(before, key.tokens, key.generated_rows);
  return key;
}

bool PrefixIndex::matches(const Entry& entry, const Key& key) const {
  return entry.parent == key.parent && entry.generated_rows == key.generated_rows && entry.salt == key.salt &&
         std::ranges::equal(entry.tokens, key.tokens);
}

int32_t PrefixIndex::lookup(const Key& key) const {
  const auto [begin, end] = by_hash_.equal_range(key.hash);
  const auto found = std::find_if(begin, end, [&](const auto& item) { return matches(entry(item.second), key); });
  return found == end ? kNone : found->second;
}

std::vector<int32_t> PrefixIndex::find(const PrefixChain& chain, std::span<const int32_t> held,
                                       int32_t max_blocks) const {
  KIPP_CHECK(held.empty() || entry(held.back()).is_indexed);
  const auto num_full = static_cast<int32_t>(chain.tokens.size() / kBlockPositions);
  std::vector<int32_t> blocks;
  int32_t parent = held.empty() ? kNone : held.back();
  for (auto index = static_cast<int32_t>(held.size()); index < std::min(num_full, max_blocks); ++index) {
    const int32_t block = lookup(key(chain, parent, index));
    if (block == kNone) {
      break;
    }
    blocks.push_back(block);
    parent = block;
  }
  return blocks;
}

int32_t PrefixIndex::insert(const PrefixChain& chain, std::span<const int32_t> parents, int32_t block) {
  const int32_t parent = parents.empty() ? kNone : parents.back();
  KIPP_CHECK(parent == kNone || entry(parent).is_indexed);
  KIPP_CHECK(chain.tokens.size() >= (parents.size() + 1) * kBlockPositions);
  const Key key = this->key(chain, parent, static_cast<int32_t>(parents.size()));
  if (const int32_t found = lookup(key); found != kNone) {
    return found;
  }
  KIPP_CHECK(!entry(block).is_indexed);
  pool_->keep(block);
  Entry& added = entry(block);
  added = {.is_indexed = true,
           .hash = key.hash,
           .parent = parent,
           .num_children = 0,
           .generated_rows = key.generated_rows,
           .tokens = {},
           .salt = std::string(key.salt)};
  std::ranges::copy(key.tokens, added.tokens.begin());
  if (parent != kNone) {
    ++entry(parent).num_children;
  }
  by_hash_.emplace(key.hash, block);
  ++num_blocks_;
  return block;
}

// Only from the end of a chain: a block whose successors are indexed could otherwise be taken for another chain's.
void PrefixIndex::remove(int32_t block) {
  Entry& removed = entry(block);
  KIPP_CHECK(removed.is_indexed && removed.num_children == 0);
  if (removed.parent != kNone) {
    --entry(removed.parent).num_children;
  }
  const auto [begin, end] = by_hash_.equal_range(removed.hash);
  by_hash_.erase(std::find_if(begin, end, [block](const auto& item) { return item.second == block; }));
  removed = {};
  --num_blocks_;
}

Result<void> PrefixIndex::check_invariants() const {
  std::vector<int32_t> num_children(entries_.size(), 0);
  int32_t num_indexed = 0;
  for (int32_t block = 0; block < pool_->num_blocks(); ++block) {
    const Entry& found = entry(block);
    if (found.is_indexed != pool_->is_kept(block)) {
      return broken(block, "is indexed but not kept, or kept but not indexed");
    }
    num_indexed += found.is_indexed ? 1 : 0;
    if (!found.is_indexed || found.parent == kNone) {
      continue;
    }
    ++num_children[static_cast<size_t>(found.parent)];
    if (!entry(found.parent).is_indexed) {
      return broken(block, "has a parent that is not indexed");
    }
    if (pool_->references(block) > 0 && pool_->references(found.parent) == 0) {
      return broken(block, "is in use, its parent is not");
    }
  }
  for (int32_t block = 0; block < pool_->num_blocks(); ++block) {
    if (entry(block).num_children != num_children[static_cast<size_t>(block)]) {
      return broken(block, "has another number of children");
    }
  }
  for (const auto& [hash, block] : by_hash_) {
    if (!entry(block).is_indexed || entry(block).hash != hash) {
      return broken(block, "is found by a hash that is not its own");
    }
  }
  if (num_indexed != num_blocks_ || by_hash_.size() != static_cast<size_t>(num_blocks_)) {
    return make_error(ErrorCode::kInternal, fmt::format("prefix index: {} blocks are indexed, {} counted, {} findable",
                                                        num_indexed, num_blocks_, by_hash_.size()));
  }
  return {};
}

}  // namespace kipp
