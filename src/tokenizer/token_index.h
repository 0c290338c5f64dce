// A flat hash table from the text of a token to its id, needed only while a tokenizer is created.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace kipp {

class TokenIndex {
 public:
  // `tokens` must outlive the index.
  explicit TokenIndex(std::span<const std::string_view> tokens);

  // Enters tokens[id]; returns id, or the id already entered with the same text.
  int32_t insert(int32_t id);
  // The id entered with this text, or -1.
  int32_t find(std::string_view text) const;

 private:
  struct Slot {
    uint32_t tag;  // the hash's upper half: most misses end here, without a look at the text
    int32_t id;    // -1: free
  };
  size_t locate(std::string_view text, uint64_t hash) const;

  std::span<const std::string_view> tokens_;
  std::vector<Slot> slots_;  // a power of two, at most three quarters full
};

}  // namespace kipp
