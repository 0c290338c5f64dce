// Builds the merge table from the artifact's "left right" lines.
#include "tokenizer/merge_table.h"

#include <fmt/format.h>

#include <bit>
#include <string>
#include <utility>

namespace kipp {
namespace {

struct Halves {
  std::string_view left, right;
};

tl::unexpected<Error> bad_merge(size_t rank, std::string_view merge, std::string_view what) {
  return make_error(ErrorCode::kInvalidArtifact, fmt::format("merges[{}] {}: {}", rank, quote_token(merge), what));
}

// The byte alphabet has no space, so the one in a merge separates its halves.
bool split(std::string_view merge, Halves& halves) {
  const size_t space = merge.find(' ');
  if (space == std::string_view::npos) {
    return false;
  }
  halves = {merge.substr(0, space), merge.substr(space + 1)};
  return !halves.left.empty() && !halves.right.empty() && halves.right.find(' ') == std::string_view::npos;
}

bool is_concatenation(std::string_view text, const Halves& halves) {
  return text.size() == halves.left.size() + halves.right.size() && text.starts_with(halves.left) &&
         text.ends_with(halves.right);
}

// The id of left + right. Vocabularies are listed in order of their merges, so `guess` is nearly always right.
int32_t find_merged(const Halves& halves, int32_t guess, std::span<const std::string_view> tokens,
                    const Vocabulary& vocabulary, const TokenIndex& index) {
  if (vocabulary.type(guess) == TokenType::kNormal && is_concatenation(tokens[static_cast<size_t>(guess)], halves)) {
    return guess;
  }
  return index.find(std::string(halves.left).append(halves.right));
}

}  // namespace

// The pair is a new one: its two halves make a token that no earlier merge makes.
void MergeTable::insert(int32_t left, int32_t right, uint32_t rank) {
  const uint64_t key = pack(left, right);
  size_t slot = first_slot(key);
  while (slots_[slot] != kFree) {
    slot = (slot + 1) & mask_;
  }
  slots_[slot] = key << kRankBits | rank;
}

void MergeTable::fill_byte_pairs(const Vocabulary& vocabulary) {
  byte_pair_ranks_.resize(256 * 256);
  const auto& byte_ids = vocabulary.byte_ids();
  for (size_t left = 0; left < 256; ++left) {
    for (size_t right = 0; right < 256; ++right) {
      byte_pair_ranks_[left << 8 | right] = rank(byte_ids[left], byte_ids[right]);
    }
  }
}

Result<MergeTable> MergeTable::build(std::span<const std::string_view> merges, std::span<const std::string_view> tokens,
                                     const Vocabulary& vocabulary, const TokenIndex& index) {
  if (merges.size() > tokens.size()) {
    return make_error(
        ErrorCode::kInvalidArtifact,
        fmt::format("merges: expected at most one for each of {} tokens, found {}", tokens.size(), merges.size()));
  }
  MergeTable table;
  const size_t capacity = std::bit_ceil(merges.size() + merges.size() / 3 + 2);
  table.slots_.assign(capacity, kFree);
  table.mask_ = capacity - 1;
  table.shift_ = 64 - std::countr_zero(capacity);
  table.merged_.reserve(merges.size());
  std::vector<uint8_t> is_made(tokens.size());  // by a merge so far; a byte is there from the start
  int32_t merged = -1;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    Halves halves;
    if (!split(merges[rank], halves)) {
      return bad_merge(rank, merges[rank], "expected two tokens separated by one space");
    }
    const int32_t left = index.find(halves.left);
    const int32_t right = index.find(halves.right);
    merged = find_merged(halves, merged + 1, tokens, vocabulary, index);
    if (left < 0 || right < 0 || merged < 0) {
      const std::string_view unknown = left < 0 ? halves.left : halves.right;
      return bad_merge(rank, merges[rank],
                       left < 0 || right < 0 ? fmt::format("{} is not a token", quote_token(unknown))
                                             : "what it makes is not a token");
    }
    for (const int32_t half : {left, right}) {
      if (is_made[static_cast<size_t>(half)] == 0 && vocabulary.bytes(half).size() > 1) {
        return bad_merge(rank, merges[rank], fmt::format("no earlier merge makes tokens[{}]", half));
      }
    }
    if (std::exchange(is_made[static_cast<size_t>(merged)], uint8_t{1}) != 0) {
      return bad_merge(rank, merges[rank], fmt::format("an earlier merge makes tokens[{}] too", merged));
    }
    table.insert(left, right, static_cast<uint32_t>(rank));
    table.merged_.push_back(merged);
  }
  table.fill_byte_pairs(vocabulary);
  return table;
}

}  // namespace kipp
