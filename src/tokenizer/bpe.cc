// Two ways to the same result: short words scan an array of ranks, long ones keep a queue, chunk by chunk.
#include "tokenizer/bpe.h"

#include <algorithm>
#include <span>

namespace kipp {
namespace {

// The scan is quadratic in the word, so a bound keeps the whole linear in the text. Random letters cut into words of
// one length, ms of processor time per MB, scan against queue (bench/tokenizer_bench.cc, words_of_length; Xeon, g++
// 12): 32 bytes 70 : 82, 48 bytes 91 : 80, 64 bytes 112 : 82.
constexpr size_t kMaxShortWord = 32;
constexpr uint32_t kEnd = UINT32_MAX;

uint8_t byte_at(std::string_view word, size_t i) {
  return static_cast<uint8_t>(word[i]);
}

}  // namespace

void Bpe::encode(std::string_view word, BpeWorkspace& workspace, std::vector<int32_t>& ids) const {
  if (word.size() <= kMaxShortWord) {
    encode_short(word, workspace, ids);
  } else {
    encode_long(word, workspace, ids);
  }
}

void Bpe::encode_short(std::string_view word, BpeWorkspace& workspace, std::vector<int32_t>& ids) const {
  std::array<int32_t, kMaxShortWord> tokens;
  std::array<uint32_t, kMaxShortWord> ranks;  // ranks[i]: of tokens i and i + 1
  size_t size = word.size();
  for (size_t i = 0; i < size; ++i) {
    tokens[i] = (*byte_ids_)[byte_at(word, i)];
    ranks[i] = i + 1 < size ? merges_->byte_pair_rank(byte_at(word, i), byte_at(word, i + 1)) : MergeTable::kNoMerge;
  }
  while (size > 1) {
    workspace.num_scanned += size;
    const auto best = static_cast<size_t>(std::min_element(ranks.begin(), ranks.begin() + size - 1) - ranks.begin());
    if (ranks[best] == MergeTable::kNoMerge) {
      break;
    }
    tokens[best] = merges_->merged(ranks[best]);
    std::copy(tokens.begin() + best + 2, tokens.begin() + size, tokens.begin() + best + 1);
    std::copy(ranks.begin() + best + 2, ranks.begin() + size, ranks.begin() + best + 1);
    --size;
    if (best > 0) {
      ranks[best - 1] = merges_->rank(tokens[best - 1], tokens[best]);
    }
    ranks[best] = best + 1 < size ? merges_->rank(tokens[best], tokens[best + 1]) : MergeTable::kNoMerge;
  }
  ids.insert(ids.end(), tokens.begin(), tokens.begin() + size);
}

void Bpe::start_long(std::string_view word, BpeWorkspace& workspace) const {
  const auto size = static_cast<uint32_t>(word.size());
  workspace.symbols.resize(size);
  workspace.queue.clear();
  for (uint32_t i = 0; i < size; ++i) {
    const bool is_last = i + 1 == size;
    BpeWorkspace::Symbol& symbol = workspace.symbols[i];
    symbol.id = (*byte_ids_)[byte_at(word, i)];
    symbol.pair_rank = is_last ? MergeTable::kNoMerge : merges_->byte_pair_rank(byte_at(word, i), byte_at(word, i + 1));
    symbol.next = is_last ? kEnd : i + 1;
    symbol.previous = i == 0 ? kEnd : i - 1;
    if (symbol.pair_rank != MergeTable::kNoMerge) {
      workspace.queue.push(symbol.pair_rank, i);
    }
  }
}

// Looks up the pair that begins at `position` after one of its symbols changed, and queues it.
void Bpe::queue_pair(uint32_t position, BpeWorkspace& workspace) const {
  BpeWorkspace::Symbol& symbol = workspace.symbols[position];
  symbol.pair_rank =
      symbol.next == kEnd ? MergeTable::kNoMerge : merges_->rank(symbol.id, workspace.symbols[symbol.next].id);
  if (symbol.pair_rank != MergeTable::kNoMerge) {
    workspace.queue.push(symbol.pair_rank, position);
  }
}

// Merges the pairs of one rank from left to right, then looks up the pairs that this made. They can wait till then: the
// merge table sees to it that a token takes part only in merges of a higher rank than the one that makes it.
void Bpe::merge_batch(uint32_t rank, BpeWorkspace& workspace) const {
  std::vector<BpeWorkspace::Symbol>& symbols = workspace.symbols;
  const int32_t merged = merges_->merged(rank);
  size_t num_merged = 0;
  for (const uint32_t left : workspace.batch) {
    BpeWorkspace::Symbol& symbol = symbols[left];
    // A pair only ever grows, so no position has the same rank twice: an entry of another rank than the position's
    // present one is out of date.
    if (symbol.pair_rank != rank) {
      continue;
    }
    symbols[symbol.next].pair_rank = MergeTable::kNoMerge;
    symbol.id = merged;
    symbol.pair_rank = MergeTable::kNoMerge;
    symbol.next = symbols[symbol.next].next;
    if (symbol.next != kEnd) {
      symbols[symbol.next].previous = left;
    }
    if (symbol.previous != kEnd) {
      symbols[symbol.previous].pair_rank = MergeTable::kNoMerge;
    }
    workspace.batch[num_merged++] = left;
  }
  for (const uint32_t left : std::span(workspace.batch).first(num_merged)) {
    const uint32_t previous = symbols[left].previous;
    if (previous != kEnd && symbols[previous].id != merged) {  // else it is of this batch too, and done
      queue_pair(previous, workspace);
    }
    queue_pair(left, workspace);
  }
}

void Bpe::merge_long(std::string_view word, BpeWorkspace& workspace) const {
  start_long(word, workspace);
  uint32_t rank = 0;
  while (workspace.queue.pop(rank, workspace.batch)) {
    merge_batch(rank, workspace);
  }
}

// Encodes chunk by chunk; false, with some of the ids appended, if the chunks do not fit together.
// Why it is exact: no merge crossed a border between two final symbols, so the symbols of a chunk up to a border are
// the encoding of the bytes up to it, and any two neighbours are the encoding of their own bytes. If the next chunk,
// which begins at the border, begins with the symbol that followed the border in this one, then no merge can cross the
// border in the whole word either: the first that did would also join those two neighbours on their own.
bool Bpe::encode_chunks(std::string_view word, BpeWorkspace& workspace, std::vector<int32_t>& ids) const {
  const uint32_t border = chunks_.size - chunks_.margin;
  int32_t expected = -1;
  while (true) {
    merge_long(word.substr(0, chunks_.size), workspace);
    if (expected >= 0 && workspace.symbols[0].id != expected) {
      return false;
    }
    const uint32_t end = word.size() <= chunks_.size ? kEnd : border;
    uint32_t position = 0;
    while (position < end) {
      ids.push_back(workspace.symbols[position].id);
      position = workspace.symbols[position].next;
    }
    if (position == kEnd) {
      return end == kEnd;  // else one symbol reached over the whole margin
    }
    expected = workspace.symbols[position].id;
    word.remove_prefix(position);
  }
}

void Bpe::encode_long(std::string_view word, BpeWorkspace& workspace, std::vector<int32_t>& ids) const {
  const size_t num_before = ids.size();
  if (encode_chunks(word, workspace, ids)) {
    return;
  }
  ++workspace.num_whole;
  ids.resize(num_before);
  merge_long(word, workspace);
  for (uint32_t position = 0; position != kEnd; position = workspace.symbols[position].next) {
    ids.push_back(workspace.symbols[position].id);
  }
}

}  // namespace kipp
