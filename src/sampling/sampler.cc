// Padding mask, bans and bias, grammar mask, penalties, temperature, top_k, top_p, min_p, draw: in this order.
#include "sampling/sampler.h"

#include <algorithm>
#include <vector>

#include "sampling/logit_processors.h"
#include "sampling/logprobs.h"
#include "sampling/request.h"
#include "sampling/sampling_math.h"
#include "sampling/selection.h"
#include "sampling/temperature.h"

namespace kipp {
namespace {

// Order keys of the processed logits, 0 where excluded.
std::vector<uint32_t> keys_of(std::span<const float> values) {
  std::vector<uint32_t> keys(values.size());
  std::transform(values.begin(), values.end(), keys.begin(),
                 [](float value) { return is_finite(value) ? order_key(value) : 0U; });
  return keys;
}

// The survivors of top_k, in ascending order of ids, with their weights.
std::vector<Candidate> weighed_candidates(std::span<const uint32_t> keys, const SamplingParams& params, uint32_t best) {
  const auto num_allowed = static_cast<int64_t>(keys.size()) - std::count(keys.begin(), keys.end(), 0U);
  Cut cut{0U, 0};  // everything that is not excluded
  if (params.top_k > 0 && params.top_k < num_allowed) {
    cut = cut_by_count(keys, static_cast<uint64_t>(params.top_k));
  }
  const InverseTemperature inverse = inverse_temperature(params.temperature);
  const float best_logit = logit_of_key(best);
  std::vector<Candidate> candidates;
  candidates.reserve(
      static_cast<size_t>(params.top_k > 0 ? std::min<int64_t>(params.top_k, num_allowed) : num_allowed));
  CutFilter filter(cut);
  for (size_t id = 0; id < keys.size(); ++id) {
    if (filter.keeps(keys[id])) {
      const float distance = saturate(best_logit - logit_of_key(keys[id]));
      candidates.push_back({weight_of(distance, inverse), keys[id], static_cast<int32_t>(id)});
    }
  }
  return candidates;
}

int32_t draw(std::span<const uint32_t> keys, const SampleRequest& request, uint32_t best) {
  const SamplingParams& params = *request.params;
  std::vector<Candidate> candidates = weighed_candidates(keys, params, best);
  if (params.top_p < 1.0F) {
    const uint64_t needed = share_of(sum_of_weights(candidates), fixed_share(params.top_p));
    apply_cut(cut_by_weight(candidates, std::max<uint64_t>(needed, 1)), candidates);
  }
  if (params.min_p > 0.0F) {
    const uint64_t least = least_weight(params.min_p);
    std::erase_if(candidates, [least](const Candidate& candidate) { return candidate.weight < least; });
  }
  return candidate_at(candidates, multiply_high(random_of(request), sum_of_weights(candidates)));
}

void add_logprobs(std::span<const float> logits, int32_t num_tokens, int32_t count, SampledToken& token) {
  const LogSoftmax softmax = log_softmax(logits, num_tokens);
  token.logprob = softmax(logits[static_cast<size_t>(token.id)]);
  token.top_logprobs = best_logprobs(logits, num_tokens, count, softmax);
}

}  // namespace

Result<SampledToken> sample_token(std::span<const float> logits, const SampleRequest& request, int32_t num_tokens) {
  KIPP_TRY(check_request(request, logits.size(), num_tokens));
  KIPP_TRY(check_finite(logits, num_tokens));
  KIPP_ASSIGN(const std::vector<float> values, process_logits(logits, request, num_tokens));
  const std::vector<uint32_t> keys = keys_of(values);
  const auto best = std::max_element(keys.begin(), keys.end());
  if (*best == 0U) {
    return nothing_to_sample();
  }
  SampledToken token;
  const bool greedy = request.params->temperature < kGreedyTemperature;
  token.id = greedy ? static_cast<int32_t>(best - keys.begin()) : draw(keys, request, *best);
  if (request.num_logprobs >= 0) {
    add_logprobs(logits, num_tokens, request.num_logprobs, token);
  }
  return token;
}

}  // namespace kipp
