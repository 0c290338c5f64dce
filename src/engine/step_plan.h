// Cuts token runs into steps within a backend's limits. Pure data in, pure data out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"

namespace kipp {

struct TokenRun {
  size_t num_tokens;                   // >= 1
  std::span<const int32_t> head_rows;  // ascending indices in [0, num_tokens)
};

// Tokens [begin, begin + count) of a run, and its head rows [head_begin, head_begin + head_count).
struct PlannedSpan {
  size_t run;
  size_t begin, count;
  size_t head_begin, head_count;
};

// Steps in order; each holds at most one span of a run, and a run's spans are in order and cover it.
std::vector<std::vector<PlannedSpan>> plan_steps(std::span<const TokenRun> runs, const Limits& limits);

}  // namespace kipp
