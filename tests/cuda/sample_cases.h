// Random rows of logits and requests for the samplers, with everything that is awkward: ties, subnormals, extremes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <random>
#include <vector>

#include "kipp/sampling.h"

namespace kipp::cuda {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Rows of logits with their requests, which point into the lists here: it can be moved, not copied.
class SampleCases {
 public:
  SampleCases(uint64_t seed, int32_t vocab, int32_t num_tokens)
      : random_(seed), vocab_(vocab), num_tokens_(num_tokens) {}
  SampleCases(const SampleCases&) = delete;
  SampleCases& operator=(const SampleCases&) = delete;
  SampleCases(SampleCases&&) = default;

  // Adds a row with parameters of its own kind; the request may be changed through the result until the next one.
  SampleRequest& add(const SamplingParams& params, const std::vector<float>& row);
  void add_random();

  const std::vector<float>& logits() const { return logits_; }
  std::vector<float>& logits() { return logits_; }
  const std::vector<SampleRequest>& requests() const { return requests_; }
  std::span<const float> row(size_t r) const {
    return std::span(logits_).subspan(r * static_cast<size_t>(vocab_), static_cast<size_t>(vocab_));
  }
  int32_t num_rows() const { return static_cast<int32_t>(requests_.size()); }
  int32_t vocab() const { return vocab_; }
  int32_t num_tokens() const { return num_tokens_; }

  std::vector<float> random_row(uint32_t kind);  // kind < kRowKinds; padding rows hold NaN
  static constexpr uint32_t kRowKinds = 10;

 private:
  template <typename T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[random_() % values.size()];
  }
  bool chance(double probability) { return std::bernoulli_distribution(probability)(random_); }
  int32_t random_id() { return static_cast<int32_t>(random_() % static_cast<uint64_t>(num_tokens_)); }
  float random_logit(uint32_t kind);
  SamplingParams random_params();
  void add_bias(SamplingParams& params);
  const std::vector<uint32_t>& random_mask();
  const std::vector<int32_t>& random_history();

  std::mt19937_64 random_;
  int32_t vocab_, num_tokens_;
  std::vector<float> logits_;
  std::vector<SampleRequest> requests_;
  std::deque<SamplingParams> params_;
  std::deque<std::vector<uint32_t>> masks_;
  std::deque<std::vector<int32_t>> histories_;
};

inline SampleRequest& SampleCases::add(const SamplingParams& params, const std::vector<float>& row) {
  logits_.insert(logits_.end(), row.begin(), row.end());
  params_.push_back(params);
  SampleRequest request;
  request.params = &params_.back();
  return requests_.emplace_back(request);
}

inline float SampleCases::random_logit(uint32_t kind) {
  const float normal = std::normal_distribution<float>(0.0F, 2.5F)(random_);
  switch (kind) {
    case 0: return normal;
    case 1: return std::round(normal * 2.0F) / 2.0F;  // many ties
    case 2: return 3.25F;                             // nothing but ties
    case 3: return chance(0.5) ? 1.0F : 1.0F + 0x1p-20F;
    case 4: return normal * 1e-3F;  // all in two buckets
    case 5: return normal * 1e38F;  // up to the largest floats
    case 6: return one_of({0.0F, -0.0F, 1e-40F, -1e-40F, 0x1p-126F, -0x1p-126F, 1e-30F, -1e-30F});
    case 7: return chance(0.001) ? 20.0F + normal : normal - 5.0F;  // as a trained model's
    case 8: return normal * 40.0F;                                  // beyond the buckets
    default: return -100.0F - std::abs(normal);
  }
}

inline std::vector<float> SampleCases::random_row(uint32_t kind) {
  std::vector<float> row(static_cast<size_t>(vocab_), kNan);
  const auto num_tokens = static_cast<std::ptrdiff_t>(num_tokens_);
  std::generate(row.begin(), row.begin() + num_tokens, [&] {
    const float logit = random_logit(kind);
    return std::isfinite(logit) ? logit : std::numeric_limits<float>::max();
  });
  return row;
}

inline void SampleCases::add_bias(SamplingParams& params) {
  const auto count = 1 + random_() % 20;
  for (uint64_t i = 0; i < count; ++i) {
    const int32_t id = random_id();
    const bool is_new = std::ranges::none_of(params.logit_bias, [id](const auto& entry) { return entry.first == id; });
    if (is_new) {
      params.logit_bias.emplace_back(id, one_of({-kInfinity, -100.0F, -1.5F, 0.0F, 0.3F, 7.0F, 100.0F}));
    }
  }
}

inline SamplingParams SampleCases::random_params() {
  std::uniform_real_distribution<float> unit(0.0F, 1.0F);
  SamplingParams params;
  params.temperature = one_of({0.0F, 1e-6F, 1e-5F, 0.01F, 0.6F, 0.7F, 1.0F, 2.0F, 50.0F, 1e30F, 3.0F * unit(random_)});
  if (chance(0.6)) {
    params.top_k = one_of({1, 2, 20, 64, num_tokens_ / 3, num_tokens_ - 1, num_tokens_, num_tokens_ + 1, 1 << 30});
  }
  if (chance(0.6)) {
    params.top_p = one_of({0.0F, 1e-10F, 0.1F, 0.5F, 0.8F, 0.95F, 0.999F, 0x1.fffffep-1F, unit(random_)});
  }
  if (chance(0.3)) {
    params.min_p = one_of({1e-20F, 0.01F, 0.1F, 0.5F, 1.0F});
  }
  if (chance(0.2)) {
    params.repetition_penalty = one_of({1.1F, 0.5F, 2.0F, 1e-30F, 1e30F});
  }
  if (chance(0.2)) {
    params.presence_penalty = 4.0F * unit(random_) - 2.0F;
  }
  if (chance(0.2)) {
    params.frequency_penalty = 4.0F * unit(random_) - 2.0F;
  }
  if (chance(0.2)) {
    add_bias(params);
  }
  return params;
}

inline const std::vector<uint32_t>& SampleCases::random_mask() {
  std::vector<uint32_t> mask((static_cast<size_t>(vocab_) + 31) / 32, 0U);
  const auto allow = [&mask](int32_t id) { mask[static_cast<size_t>(id) / 32] |= 1U << (id % 32); };
  const int32_t kind = one_of({0, 1, 2, 3});
  if (kind == 0) {
    std::ranges::generate(mask, [&] { return static_cast<uint32_t>(random_()); });
  } else if (kind == 1) {
    std::ranges::fill(mask, ~0U);
  } else if (kind == 2) {
    for (int32_t i = 0; i < 30; ++i) {
      allow(random_id());
    }
  }
  allow(random_id());
  return masks_.emplace_back(std::move(mask));
}

inline const std::vector<int32_t>& SampleCases::random_history() {
  std::vector<int32_t> ids(random_() % 200);
  const auto range = static_cast<uint64_t>(chance(0.5) ? vocab_ : std::min(vocab_, 20));
  std::ranges::generate(ids, [&] { return static_cast<int32_t>(random_() % range); });
  return histories_.emplace_back(std::move(ids));
}

inline void SampleCases::add_random() {
  const SamplingParams params = random_params();
  SampleRequest& request = add(params, random_row(static_cast<uint32_t>(random_() % kRowKinds)));
  request.seed = random_();
  request.choice = static_cast<int32_t>(random_() % 4);
  request.position = static_cast<int32_t>(random_() % 40960);
  request.num_logprobs = one_of({-1, -1, -1, 0, 1, 5, 20});
  if (chance(0.2)) {
    // Bans and a mask of one id could leave nothing; that is tested by itself.
    params_.back().logit_bias.clear();
    request.mask = random_mask().data();
  }
  request.prompt_ids = random_history();
  request.output_ids = random_history();
}

}  // namespace kipp::cuda
