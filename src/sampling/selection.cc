// Radix descent: three levels of 11, 11 and 10 bits of the key, each a histogram of the mass in its buckets.
#include "sampling/selection.h"

#include <array>

namespace kipp {
namespace {

constexpr int32_t kMaxBuckets = 1 << 11;
struct Level {
  int32_t shift;
  uint32_t num_buckets;
};
constexpr std::array<Level, 3> kLevels = {Level{21, 1U << 11}, Level{10, 1U << 11}, Level{0, 1U << 10}};

// key_of(item), mass_of(item): equal keys have equal mass. need: 1 … total mass.
template <typename Item, typename KeyOf, typename MassOf>
Cut find_cut(std::span<const Item> items, uint64_t need, KeyOf key_of, MassOf mass_of) {
  uint32_t prefix = 0;
  uint32_t prefix_mask = 0;
  uint64_t mass_of_one = 1;
  for (const Level level : kLevels) {
    std::array<uint64_t, kMaxBuckets> histogram{};
    for (const Item& item : items) {
      const uint32_t key = key_of(item);
      if ((key & prefix_mask) == prefix) {
        histogram[(key >> level.shift) & (level.num_buckets - 1)] += mass_of(item);
      }
    }
    uint32_t bucket = level.num_buckets - 1;
    while (bucket > 0 && histogram[bucket] < need) {
      need -= histogram[bucket];
      --bucket;
    }
    prefix |= bucket << level.shift;
    prefix_mask |= (level.num_buckets - 1) << level.shift;
  }
  for (const Item& item : items) {
    if (key_of(item) == prefix) {
      mass_of_one = mass_of(item);
      break;
    }
  }
  return Cut{prefix, (need + mass_of_one - 1) / mass_of_one};
}

}  // namespace

Cut cut_by_count(std::span<const uint32_t> keys, uint64_t count) {
  return find_cut(keys, count, [](uint32_t key) { return key; }, [](uint32_t key) { return key == 0U ? 0ULL : 1ULL; });
}

Cut cut_by_weight(std::span<const Candidate> candidates, uint64_t weight) {
  return find_cut(
      candidates, weight, [](const Candidate& candidate) { return candidate.key; },
      [](const Candidate& candidate) { return candidate.weight; });
}

void apply_cut(Cut cut, std::vector<Candidate>& candidates) {
  CutFilter filter(cut);
  size_t num_kept = 0;
  for (const Candidate& candidate : candidates) {
    if (filter.keeps(candidate.key)) {
      candidates[num_kept++] = candidate;
    }
  }
  candidates.resize(num_kept);
}

uint64_t sum_of_weights(std::span<const Candidate> candidates) {
  uint64_t sum = 0;
  for (const Candidate& candidate : candidates) {
    sum += candidate.weight;
  }
  return sum;
}

int32_t candidate_at(std::span<const Candidate> candidates, uint64_t point) {
  uint64_t end = 0;
  for (const Candidate& candidate : candidates) {
    end += candidate.weight;
    if (point < end) {
      return candidate.id;
    }
  }
  return -1;
}

}  // namespace kipp
