// The log-softmax in the sampler's integer arithmetic.
#include "sampling/logprobs.h"

#include <fmt/format.h>

#include <algorithm>

#include "sampling/sampling_math.h"

namespace kipp {

Result<void> check_finite(std::span<const float> logits, int32_t num_tokens) {
  const auto tokens = logits.first(static_cast<size_t>(num_tokens));
  uint32_t num_bad = 0;  // counted to the end: without a branch, vector instructions can do it
  for (const float logit : tokens) {
    num_bad += is_finite(logit) ? 0U : 1U;
  }
  if (num_bad == 0) {
    return {};
  }
  const auto bad = std::ranges::find_if_not(tokens, is_finite);
  return make_error(ErrorCode::kNumerical,
                    fmt::format("the logit of id {} is {}, expected a finite number", bad - tokens.begin(), *bad));
}

LogSoftmax log_softmax(std::span<const float> logits, int32_t num_tokens) {
  const auto tokens = logits.first(static_cast<size_t>(num_tokens));
  const float best = *std::max_element(tokens.begin(), tokens.end());
  uint64_t sum = 0;
  for (const float logit : tokens) {
    sum += weight_of(saturate(best - logit), kUnitTemperature);
  }
  return LogSoftmax{best, log_of_sum(sum)};
}

std::vector<std::pair<int32_t, float>> best_logprobs(std::span<const float> logits, int32_t num_tokens, int32_t count,
                                                     const LogSoftmax& log_softmax) {
  // Sorted by key, then by id; small, so insertion is cheap: nearly every logit fails the comparison with the last.
  std::vector<std::pair<uint32_t, int32_t>> best;
  const auto wanted = static_cast<size_t>(std::min(count, num_tokens));
  best.reserve(wanted + 1);
  for (int32_t id = 0; id < num_tokens && wanted > 0; ++id) {
    const uint32_t key = order_key(logits[static_cast<size_t>(id)]);
    if (best.size() == wanted && key <= best.back().first) {
      continue;
    }
    const auto place = std::find_if(best.begin(), best.end(), [key](const auto& entry) { return entry.first < key; });
    best.insert(place, {key, id});
    if (best.size() > wanted) {
      best.pop_back();
    }
  }
  std::vector<std::pair<int32_t, float>> result;
  result.reserve(best.size());
  for (const auto& [key, id] : best) {
    result.emplace_back(id, log_softmax(logits[static_cast<size_t>(id)]));
  }
  return result;
}

}  // namespace kipp
