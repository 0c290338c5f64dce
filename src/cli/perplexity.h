// Perplexity of a token list in overlapping windows: every token but the first is scored exactly once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kipp/engine.h"
#include "kipp/error.h"

namespace kipp::cli {

// Tokens [begin, end) are seen, tokens [first_scored, end) are predicted.
struct Window {
  size_t begin;
  size_t first_scored;
  size_t end;
};

// Windows of `window` tokens, each `stride` further than the last: from the second on, a scored token sees at least
// window - stride tokens before it. Requires 1 <= stride < window.
std::vector<Window> plan_windows(size_t num_tokens, size_t window, size_t stride);

struct Perplexity {
  size_t num_scored = 0;
  double sum_nll = 0;  // natural logarithm

  double mean_nll() const { return sum_nll / static_cast<double>(num_scored); }
  double value() const;  // exp(mean_nll)
};

// Told the tokens scored so far; false ends the work early.
using PerplexityProgress = std::function<bool(const Perplexity& so_far)>;

// Errors: those of Session; kNumerical (a logit is not finite).
Result<Perplexity> perplexity(Session& session, std::span<const int32_t> ids, std::span<const Window> windows,
                              int32_t num_tokens, const PerplexityProgress& progress);

}  // namespace kipp::cli
