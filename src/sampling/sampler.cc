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

// Order keys of the processed logits, 0 where excluded; they stand until the thread's next draw. Errors: those of
// process_logits.
Result<std::span<const uint32_t>> keys_of(std::span<const float> logits, const SampleRequest& request,
                                          int32_t num_tokens) {
  // Not freed: as much as a vocabulary would go back to the system each time, and to get it again page by page takes
  // as long as the rest of a draw.
  thread_local std::vector<float> values;
  thread_local std::vector<uint32_t> keys;
  values.resize(static_cast<size_t>(num_tokens));
  keys.resize(values.size());
  KIPP_TRY(process_logits(logits, request, values));
  std::ranges::transform(values, keys.begin(), [](float value) { return is_finite(value) ? order_key(value) : 0U; });
  return keys;
}

// Nothing but the argmax of the logits is asked for.
bool takes_the_best(const SampleRequest& request) {
  const SamplingParams& params = *request.params;
  return params.temperature < kGreedyTemperature && params.logit_bias.empty() && request.mask == nullptr &&
         !has_repetition_penalty(params) && !has_count_penalty(params);
}

// The first id of the largest key of logits that are finite, without a copy of them. The largest key of a block is
// found without branches, which vector instructions can do; then only the block that has the largest of all is
// searched.
int32_t best_of(std::span<const float> logits) {
  constexpr size_t kBlock = 1024;
  uint32_t best = 0U;
  size_t best_begin = 0;
  for (size_t begin = 0; begin < logits.size(); begin += kBlock) {
    uint32_t block_best = 0U;
    for (const float logit : logits.subspan(begin, std::min(kBlock, logits.size() - begin))) {
      block_best = std::max(block_best, order_key(logit));
    }
    if (block_best > best) {
      best = block_best;
      best_begin = begin;
    }
  }
  size_t id = best_begin;
  while (order_key(logits[id]) != best) ++id;
  return static_cast<int32_t>(id);
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
  const size_t num_keys = keys.size();
  for (size_t id = 0; id < num_keys; ++id) {
    if (keys[id] >= cut.key && filter.keeps(keys[id])) {  // most of them at the first question
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

// Errors: those of process_logits; nothing is left to sample.
Result<int32_t> id_of_processed(std::span<const float> logits, const SampleRequest& request, int32_t num_tokens) {
  KIPP_ASSIGN(const std::span<const uint32_t> keys, keys_of(logits, request, num_tokens));
  const auto best = std::max_element(keys.begin(), keys.end());
  if (*best == 0U) {
    return nothing_to_sample();
  }
  const bool greedy = request.params->temperature < kGreedyTemperature;
  return greedy ? static_cast<int32_t>(best - keys.begin()) : draw(keys, request, *best);
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
  SampledToken token;
  if (takes_the_best(request)) {
    token.id = best_of(logits.first(static_cast<size_t>(num_tokens)));
  } else {
    KIPP_ASSIGN(token.id, id_of_processed(logits, request, num_tokens));
  }
  if (request.num_logprobs >= 0) {
    add_logprobs(logits, num_tokens, request.num_logprobs, token);
  }
  return token;
}

}  // namespace kipp
