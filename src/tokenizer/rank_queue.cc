// The radix heap: a pop spreads the lowest bucket that holds something over those below it.
#include "tokenizer/rank_queue.h"

#include <algorithm>
#include <bit>

namespace kipp {

void RankQueue::clear() {
  for (std::vector<Entry>& bucket : buckets_) {
    bucket.clear();
  }
  filled_ = 0;
  last_ = 0;
}

void RankQueue::push(uint32_t rank, uint32_t position) {
  const auto bucket_idx = static_cast<size_t>(std::bit_width(rank ^ last_));
  buckets_[bucket_idx].push_back({rank, position});
  filled_ |= uint64_t{1} << bucket_idx;
  ++num_steps_;
}

bool RankQueue::pop(uint32_t& rank, std::vector<uint32_t>& positions) {
  positions.clear();
  if (filled_ == 0) {
    return false;
  }
  const auto lowest = static_cast<size_t>(std::countr_zero(filled_));
  std::vector<Entry>& bucket = buckets_[lowest];
  last_ = std::min_element(bucket.begin(), bucket.end(), [](Entry a, Entry b) { return a.rank < b.rank; })->rank;
  rank = last_;
  for (const Entry entry : bucket) {
    if (entry.rank == last_) {
      positions.push_back(entry.position);
    } else {
      push(entry.rank, entry.position);  // into a lower bucket: it shares more bits with last_ now
    }
  }
  num_steps_ += positions.size();
  bucket.clear();
  filled_ &= ~(uint64_t{1} << lowest);
  if (!std::is_sorted(positions.begin(), positions.end())) {
    std::sort(positions.begin(), positions.end());
  }
  return true;
}

}  // namespace kipp
