// Which pairs of tokens merge, in which order, into what.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kipp/error.h"
#include "tokenizer/token_index.h"
#include "tokenizer/vocabulary.h"

namespace kipp {

class MergeTable {
 public:
  static constexpr uint32_t kNoMerge = UINT32_MAX;

  // Checks that each token is made by at most one merge, and before any merge that uses it, as training leaves it: then
  // the ranks at which a word merges only ever rise.
  // Errors: kInvalidArtifact naming the merge (form, unknown tokens, order, a token made twice, too many).
  static Result<MergeTable> build(std::span<const std::string_view> merges, std::span<const std::string_view> tokens,
                                  const Vocabulary& vocabulary, const TokenIndex& index);

  // The pair's rank, the lower the earlier; or kNoMerge.
  uint32_t rank(int32_t left, int32_t right) const {
    const uint64_t key = pack(left, right);
    for (size_t slot = first_slot(key);; slot = (slot + 1) & mask_) {
      const uint64_t entry = slots_[slot];
      if (entry >> kRankBits == key) {
        return static_cast<uint32_t>(entry & kRankMask);
      }
      if (entry == kFree) {
        return kNoMerge;
      }
    }
  }
  // The same for the tokens of two bytes: words begin as bytes, so most look-ups of a word are of this kind.
  uint32_t byte_pair_rank(uint8_t left, uint8_t right) const {
    return byte_pair_ranks_[static_cast<size_t>(left) << 8 | right];
  }
  int32_t merged(uint32_t rank) const { return merged_[rank]; }

 private:
  // An entry is left (18 bits), right (18 bits), rank (28 bits).
  static constexpr int kIdBits = 18;
  static constexpr int kRankBits = 28;
  static constexpr uint64_t kRankMask = (uint64_t{1} << kRankBits) - 1;
  static constexpr uint64_t kFree = UINT64_MAX;  // no pair: kMaxTokens keeps the id of all ones out

  static uint64_t pack(int32_t left, int32_t right) {
    return static_cast<uint64_t>(left) << kIdBits | static_cast<uint64_t>(right);
  }
  size_t first_slot(uint64_t key) const {
    return static_cast<size_t>(key * 0x9E3779B97F4A7C15U >> shift_);  // 2^64 / golden ratio
  }
  void insert(int32_t left, int32_t right, uint32_t rank);
  void fill_byte_pairs(const Vocabulary& vocabulary);

  std::vector<uint64_t> slots_;            // a power of two, at most three quarters full
  std::vector<int32_t> merged_;            // [num_merges]
  std::vector<uint32_t> byte_pair_ranks_;  // [256][256]
  size_t mask_ = 0;
  int shift_ = 0;
};

}  // namespace kipp
