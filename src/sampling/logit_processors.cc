// Bias, bans, grammar mask and penalties on a copy of the logits. The contract is in docs/sampling.md.
#include "sampling/logit_processors.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "sampling/request.h"
#include "sampling/sampling_math.h"

namespace kipp {
namespace {

constexpr float kExcluded = -std::numeric_limits<float>::infinity();

void apply_bias(std::span<const std::pair<int32_t, float>> logit_bias, std::span<float> values) {
  for (const auto& [id, bias] : logit_bias) {
    float& value = values[static_cast<size_t>(id)];
    value = bias == kExcluded ? kExcluded : saturate(value + bias);
  }
}

void apply_mask(const uint32_t* mask, std::span<float> values) {
  for (size_t id = 0; id < values.size(); ++id) {
    if (((mask[id / 32] >> (id % 32)) & 1U) == 0U) {
      values[id] = kExcluded;
    }
  }
}

// How often each id occurs; ids of padding rows are left out.
std::vector<int32_t> count_ids(std::span<const int32_t> ids, size_t num_tokens) {
  std::vector<int32_t> counts(num_tokens);
  for (const int32_t id : ids) {
    if (static_cast<size_t>(id) < num_tokens) {
      ++counts[static_cast<size_t>(id)];
    }
  }
  return counts;
}

Result<void> apply_penalties(const SampleRequest& request, size_t vocab, std::span<float> values) {
  const SamplingParams& params = *request.params;
  const bool repetition = has_repetition_penalty(params);
  const bool counted = has_count_penalty(params);
  if (!repetition && !counted) {
    return {};
  }
  KIPP_TRY(check_history(request, vocab));
  const std::vector<int32_t> in_output = count_ids(request.output_ids, values.size());
  const std::vector<int32_t> in_prompt =
      repetition ? count_ids(request.prompt_ids, values.size()) : std::vector<int32_t>();
  for (size_t id = 0; id < values.size(); ++id) {
    float& value = values[id];
    if (value == kExcluded) {
      continue;
    }
    if (repetition && (in_prompt[id] > 0 || in_output[id] > 0)) {
      value = repetition_penalised(value, params.repetition_penalty);
    }
    if (counted && in_output[id] > 0) {
      value = count_penalised(value, params.presence_penalty, params.frequency_penalty, in_output[id]);
    }
  }
  return {};
}

}  // namespace

Result<void> process_logits(std::span<const float> logits, const SampleRequest& request, std::span<float> values) {
  std::ranges::copy(logits.first(values.size()), values.begin());
  apply_bias(request.params->logit_bias, values);
  if (request.mask != nullptr) {
    apply_mask(request.mask, values);
  }
  return apply_penalties(request, logits.size(), values);
}

}  // namespace kipp
