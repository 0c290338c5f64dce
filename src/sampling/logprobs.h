// Log-probabilities of raw logits: a stable log-softmax over the tokens, independent of every sampling parameter.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/host_device.h"
#include "kipp/error.h"

namespace kipp {

// log p(x) = (x - best) - log_sum. The sum is one of integers, so its order does not matter.
struct LogSoftmax {
  float best;     // the largest logit
  float log_sum;  // ln Σ e^(x - best), >= 0

  KIPP_HOST_DEVICE float operator()(float logit) const { return 0.0F - ((best - logit) + log_sum); }
};

// Checks that every logit of an id below num_tokens is finite. Errors: kNumerical naming the first id and its value.
Result<void> check_finite(std::span<const float> logits, int32_t num_tokens);

// logits: finite, [num_tokens or more]; padding rows are left out. 1 <= num_tokens <= 2^19.
LogSoftmax log_softmax(std::span<const float> logits, int32_t num_tokens);

// The `count` best ids with their log-probabilities, descending, ties by ascending id; fewer only if there are fewer.
std::vector<std::pair<int32_t, float>> best_logprobs(std::span<const float> logits, int32_t num_tokens, int32_t count,
                                                     const LogSoftmax& log_softmax);

}  // namespace kipp
