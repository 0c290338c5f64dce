// Cutting a distribution without sorting it: a radix descent over order keys finds where top_k and top_p end.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sampling/sampling_math.h"

namespace kipp {

struct Candidate {
  uint64_t weight;  // 2^44 for the best, falling with the distance; 0: too far away to be drawn
  uint32_t key;     // order_key of the processed logit
  int32_t id;
};

// Keeps every key above `key`, and of those equal to it the `num_ties` lowest ids.
struct Cut {
  uint32_t key;
  uint64_t num_ties;
};

// Asks a cut about one key after the other, in ascending order of ids.
class CutFilter {
 public:
  explicit CutFilter(Cut cut) : cut_(cut) {}

  bool keeps(uint32_t key) {
    if (key != cut_.key || cut_.num_ties == 0) {
      return key > cut_.key;
    }
    --cut_.num_ties;
    return true;
  }

 private:
  Cut cut_;
};

// Where the count of the best keys first reaches `count`: 1 <= count <= keys that are not 0.
Cut cut_by_count(std::span<const uint32_t> keys, uint64_t count);
// Where the summed weight of the best candidates first reaches `weight`: 1 <= weight <= the sum over all.
Cut cut_by_weight(std::span<const Candidate> candidates, uint64_t weight);

// Drops the candidates (in ascending order of ids) that the cut does not keep.
void apply_cut(Cut cut, std::vector<Candidate>& candidates);

uint64_t sum_of_weights(std::span<const Candidate> candidates);
// The id whose share of [0, sum) holds `point`, candidates laid end to end in ascending order of ids.
int32_t candidate_at(std::span<const Candidate> candidates, uint64_t point);

}  // namespace kipp
