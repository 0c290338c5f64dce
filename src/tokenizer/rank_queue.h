// A monotone priority queue of (rank, position): a radix heap (Ahuja et al. 1990) on the rank.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace kipp {

// A rank pushed must be at least the last one popped; then every entry moves at most once for each bit of a rank, and
// always to the end of a vector, which is what makes it quicker than a binary heap on words of a megabyte.
class RankQueue {
 public:
  // Forgets every entry and the last rank popped.
  void clear();
  void push(uint32_t rank, uint32_t position);
  // Takes out all positions of the lowest rank, in ascending order; false if the queue is empty.
  bool pop(uint32_t& rank, std::vector<uint32_t>& positions);

  uint64_t num_steps() const { return num_steps_; }  // entries pushed, moved and popped so far, never cleared

 private:
  struct Entry {
    uint32_t rank, position;
  };
  // Bucket b holds the ranks whose highest bit that differs from last_ is bit b - 1; bucket 0 those equal to it.
  std::array<std::vector<Entry>, 33> buckets_;
  uint64_t filled_ = 0;  // bit b: bucket b holds something
  uint32_t last_ = 0;
  uint64_t num_steps_ = 0;
};

}  // namespace kipp
