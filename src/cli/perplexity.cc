// Plans the windows, then runs them in pieces of rows, so that memory does not grow with the window.
#include "cli/perplexity.h"

#include <algorithm>
#include <cmath>

#include "sampling/logprobs.h"

namespace kipp::cli {
namespace {

// Rows whose logits are held at once: 32 × 151,936 floats are 19 MB.
constexpr size_t kRowsPerPiece = 32;
// Tokens that only give context, evaluated between two questions whether to go on. The result does not depend on it.
constexpr size_t kUnscoredPerPiece = 64;

// Row i of logits predicts targets[i].
Result<void> score_rows(std::span<const std::vector<float>> logits, std::span<const int32_t> targets,
                        int32_t num_tokens, Perplexity& total) {
  for (size_t i = 0; i < targets.size(); ++i) {
    KIPP_TRY(check_finite(logits[i], num_tokens));
    const LogSoftmax log_probability = log_softmax(logits[i], num_tokens);
    total.sum_nll -= static_cast<double>(log_probability(logits[i][static_cast<size_t>(targets[i])]));
    ++total.num_scored;
  }
  return {};
}

// Returns false if progress ended the work.
Result<bool> score_window(Session& session, std::span<const int32_t> ids, const Window& window, int32_t num_tokens,
                          Perplexity& total, const PerplexityProgress& progress) {
  session.reset();
  const size_t first_row = window.first_scored - 1;
  for (size_t row = window.begin; row < first_row; row += kUnscoredPerPiece) {
    if (!progress(total)) {
      return false;
    }
    KIPP_TRY(session.append(ids.subspan(row, std::min(kUnscoredPerPiece, first_row - row))));
  }
  for (size_t row = first_row; row + 1 < window.end; row += kRowsPerPiece) {
    if (!progress(total)) {
      return false;
    }
    const size_t count = std::min(kRowsPerPiece, window.end - 1 - row);
    KIPP_ASSIGN(const auto logits, session.append_all_logits(ids.subspan(row, count)));
    KIPP_TRY(score_rows(logits, ids.subspan(row + 1, count), num_tokens, total));
  }
  return true;
}

}  // namespace

std::vector<Window> plan_windows(size_t num_tokens, size_t window, size_t stride) {
  std::vector<Window> windows;
  size_t begin = 0;
  size_t scored = 1;  // tokens [0, scored) are done; the first has nothing before it
  while (scored < num_tokens) {
    const size_t end = std::min(begin + window, num_tokens);
    windows.push_back({.begin = begin, .first_scored = scored, .end = end});
    scored = end;
    begin += stride;
  }
  return windows;
}

double Perplexity::value() const {
  return std::exp(mean_nll());
}

Result<Perplexity> perplexity(Session& session, std::span<const int32_t> ids, std::span<const Window> windows,
                              int32_t num_tokens, const PerplexityProgress& progress) {
  Perplexity total;
  for (const Window& window : windows) {
    KIPP_ASSIGN(const bool go_on, score_window(session, ids, window, num_tokens, total, progress));
    if (!go_on) {
      break;
    }
  }
  return total;
}

}  // namespace kipp::cli
