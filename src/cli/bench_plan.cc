// Lists and small sums.
#include "cli/bench_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "kv/block_pool.h"

namespace kipp::cli {

std::string BenchCase::name() const {
  return decode ? fmt::format("decode at {}, batch {}", depth, batch) : fmt::format("prefill {}", tokens);
}

std::vector<BenchCase> BenchPlan::cases() const {
  std::vector<BenchCase> all;
  for (const int32_t tokens : prefill) {
    if (tokens > 0) {
      all.push_back({.decode = false, .tokens = tokens, .depth = 0, .batch = 1});
    }
  }
  for (const int32_t depth : depths) {
    for (const int32_t batch : batches) {
      if (decode > 0) {
        all.push_back({.decode = true, .tokens = decode, .depth = depth, .batch = batch});
      }
    }
  }
  return all;
}

int32_t needed_context(std::span<const BenchCase> cases) {
  int32_t context = kStartTokens;
  for (const BenchCase& one : cases) {
    context = std::max(context, one.positions());
  }
  return context;
}

int64_t needed_blocks(std::span<const BenchCase> cases) {
  int64_t blocks = blocks_for(kStartTokens);
  for (const BenchCase& one : cases) {
    blocks = std::max(blocks, int64_t{one.batch} * blocks_for(one.positions()));
  }
  return blocks;
}

std::vector<int32_t> synthetic_tokens(uint64_t seed, uint64_t stream, int32_t count, int32_t num_tokens) {
  std::seed_seq words{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(stream),
                      static_cast<uint32_t>(stream >> 32)};
  std::mt19937_64 generator(words);
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int32_t& id : ids) {
    id = static_cast<int32_t>(generator() % static_cast<uint64_t>(num_tokens));
  }
  return ids;
}

double Spread::median() const {
  if (values.empty()) {
    return 0;
  }
  std::vector<double> sorted = values;
  std::ranges::sort(sorted);
  const size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

double Spread::min() const {
  return values.empty() ? 0 : *std::ranges::min_element(values);
}

double Spread::max() const {
  return values.empty() ? 0 : *std::ranges::max_element(values);
}

Spread shares(std::span<const double> values, std::span<const double> limits) {
  Spread result;
  for (size_t i = 0; i < values.size(); ++i) {
    const double limit = std::max(limits[i], limits[i + 1]);
    result.values.push_back(limit > 0 ? values[i] / limit : 0);
  }
  return result;
}

}  // namespace kipp::cli
