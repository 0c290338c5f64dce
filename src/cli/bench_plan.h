// What `kipp bench` measures, and the arithmetic of its figures: no model, no clock.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace kipp::cli {

// One figure: a prompt of `tokens` after nothing, or `batch` sequences that hold `depth` tokens each and decode
// `tokens` steps together.
struct BenchCase {
  bool decode = false;
  int32_t tokens = 0;
  int32_t depth = 0;
  int32_t batch = 1;

  int32_t positions() const { return depth + tokens; }  // of each sequence
  int64_t num_tokens() const { return int64_t{batch} * tokens; }
  // Positions that a decoded token attends to, its own included, on average over the steps.
  double mean_context() const { return depth + (tokens + 1) / 2.0; }
  std::string name() const;  // "prefill 512", "decode at 16, batch 8"
};

struct BenchPlan {
  std::vector<int32_t> prefill = {512};  // 0: none
  std::vector<int32_t> depths = {16};
  std::vector<int32_t> batches = {1};
  int32_t decode = 64;  // steps of a repetition; 0: none
  int32_t repetitions = 5;
  uint64_t seed = 0;
  bool draw = false;        // also draw a token of each sequence after each step, greedily
  bool skip_start = false;  // do not time opening and the first token

  std::vector<BenchCase> cases() const;  // prefill first, then every depth with every batch
};

// What the model must be opened with to hold any of the cases, one at a time, and a prompt of kStartTokens.
inline constexpr int32_t kStartTokens = 16;
int32_t needed_context(std::span<const BenchCase> cases);
int64_t needed_blocks(std::span<const BenchCase> cases);

// Token ids drawn from the seed, all below num_tokens. Different streams differ.
std::vector<int32_t> synthetic_tokens(uint64_t seed, uint64_t stream, int32_t count, int32_t num_tokens);

// Median, smallest and largest of a few values, which stay in their order.
struct Spread {
  std::vector<double> values;

  double median() const;
  double min() const;
  double max() const;
};

// values[i] / the larger of limits[i] and limits[i + 1]: what a figure reached of a limit that was measured right
// before and right after it. 0 where that is 0.
Spread shares(std::span<const double> values, std::span<const double> limits);

}  // namespace kipp::cli
