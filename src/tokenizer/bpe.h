// Byte-pair encoding of one word: the pair of lowest rank merges first, the leftmost of equals.
// Sennrich et al. 2016; the same result as the reference's priority queue.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/merge_table.h"
#include "tokenizer/rank_queue.h"

namespace kipp {

// Memory that one encode call reuses from word to word.
struct BpeWorkspace {
  struct Symbol {
    int32_t id;
    uint32_t pair_rank;       // of this symbol with the next one
    uint32_t next, previous;  // positions
  };
  std::vector<Symbol> symbols;  // [word's bytes] a symbol stands at the position of its first byte
  std::vector<uint32_t> batch;  // positions of the pairs of one rank
  RankQueue queue;
  uint64_t num_scanned = 0;  // pairs looked at in short words so far
  uint64_t num_whole = 0;    // long words whose chunks did not fit together

  uint64_t num_steps() const { return num_scanned + queue.num_steps(); }  // the work done, for the test of linearity
};

class Bpe {
 public:
  // How long words are cut: into chunks that a second-level cache holds, of which the last `margin` bytes are encoded
  // again with the next chunk.
  struct Chunks {
    uint32_t size = 1U << 14;
    uint32_t margin = 1U << 9;  // less than size
  };

  // Both must outlive it.
  Bpe(const MergeTable& merges, const std::array<int32_t, 256>& byte_ids) : Bpe(merges, byte_ids, Chunks()) {}
  Bpe(const MergeTable& merges, const std::array<int32_t, 256>& byte_ids, Chunks chunks)
      : merges_(&merges), byte_ids_(&byte_ids), chunks_(chunks) {}

  // Appends the ids of `word` to `ids`. At most 2^32 - 2 bytes. Time: near-linear in the word.
  void encode(std::string_view word, BpeWorkspace& workspace, std::vector<int32_t>& ids) const;

 private:
  void encode_short(std::string_view word, BpeWorkspace& workspace, std::vector<int32_t>& ids) const;
  void encode_long(std::string_view word, BpeWorkspace& workspace, std::vector<int32_t>& ids) const;
  bool encode_chunks(std::string_view word, BpeWorkspace& workspace, std::vector<int32_t>& ids) const;
  void merge_long(std::string_view word, BpeWorkspace& workspace) const;
  void start_long(std::string_view word, BpeWorkspace& workspace) const;
  void merge_batch(uint32_t rank, BpeWorkspace& workspace) const;
  void queue_pair(uint32_t position, BpeWorkspace& workspace) const;

  const MergeTable* merges_;
  const std::array<int32_t, 256>* byte_ids_;
  Chunks chunks_;
};

}  // namespace kipp
