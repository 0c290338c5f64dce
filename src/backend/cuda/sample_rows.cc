// Rows one after the other into three tables: parameters, edits, masks.
#include "backend/cuda/sample_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "sampling/request.h"
#include "sampling/temperature.h"

namespace kipp::cuda {
namespace {

constexpr size_t kAlignment = 16;

size_t aligned(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Everything but edits and mask.
SampleParams params_of(const SampleRequest& request) {
  const SamplingParams& from = *request.params;
  SampleParams params{};
  params.greedy = from.temperature < kGreedyTemperature ? 1 : 0;
  params.top_p = kTopPOff;
  if (params.greedy == 0) {
    params.inverse = inverse_temperature(from.temperature);
    params.random = random_of(request);
    params.top_p = from.top_p < 1.0F ? fixed_share(from.top_p) : kTopPOff;
    params.min_weight = from.min_p > 0.0F ? least_weight(from.min_p) : 0;
    params.top_k = from.top_k;
  }
  params.num_logprobs = request.num_logprobs;
  params.mask = kNoMask;
  params.repetition_penalty = from.repetition_penalty;
  params.presence_penalty = from.presence_penalty;
  params.frequency_penalty = from.frequency_penalty;
  return params;
}

template <typename T>
void copy_to(std::span<std::byte> out, size_t offset, const T* values, size_t count) {
  if (count > 0) {
    std::memcpy(out.data() + offset, values, count * sizeof(T));
  }
}

}  // namespace

SampleRows::SampleRows(int32_t vocab, int32_t num_tokens)
    : vocab_(vocab),
      num_tokens_(num_tokens),
      edit_of_id_(static_cast<size_t>(num_tokens)),
      is_edited_((static_cast<size_t>(num_tokens) + 63) / 64) {}

Result<void> SampleRows::assign(std::span<const SampleRequest> requests) {
  params_.clear();
  edits_.clear();
  masks_.clear();
  for (size_t r = 0; r < requests.size(); ++r) {
    if (const Result<void> added = add(requests[r]); !added) {
      params_.clear();
      return make_error(added.error().code, fmt::format("row {}: {}", r, added.error().message));
    }
  }
  return {};
}

Result<void> SampleRows::add(const SampleRequest& request) {
  const auto vocab = static_cast<size_t>(vocab_);
  KIPP_TRY(check_request(request, vocab, num_tokens_));
  KIPP_TRY(check_history(request, vocab));
  if (!leaves_a_token(request, num_tokens_)) {
    return nothing_to_sample();
  }
  SampleParams params = params_of(request);
  if (request.mask != nullptr) {
    params.mask = static_cast<int32_t>(masks_.size());
    masks_.push_back(request.mask);
  }
  params.first_edit = static_cast<int32_t>(edits_.size());
  add_edits(request);
  params.num_edits = static_cast<int32_t>(edits_.size()) - params.first_edit;
  params.edited = params.num_edits > 0 || params.mask != kNoMask ? 1 : 0;
  params_.push_back(params);
  return {};
}

void SampleRows::count_history(const SampleRequest& request) {
  const bool repetition = has_repetition_penalty(*request.params);
  const bool counted = has_count_penalty(*request.params);
  const auto visit = [&](std::span<const int32_t> ids, int32_t count) {
    for (const int32_t id : ids) {
      if (id < num_tokens_) {
        LogitEdit& edit = edit_of_id_[static_cast<size_t>(id)];
        edit.repeated = repetition ? 1 : 0;
        edit.output_count += count;
        is_edited_[static_cast<size_t>(id) / 64] |= uint64_t{1} << (id % 64);
      }
    }
  };
  if (repetition || counted) {
    visit(request.output_ids, counted ? 1 : 0);
  }
  if (repetition) {
    visit(request.prompt_ids, 0);
  }
}

void SampleRows::add_edits(const SampleRequest& request) {
  const SamplingParams& params = *request.params;
  if (params.logit_bias.empty() && !has_repetition_penalty(params) && !has_count_penalty(params)) {
    return;
  }
  count_history(request);
  for (const auto& [id, bias] : params.logit_bias) {
    edit_of_id_[static_cast<size_t>(id)].bias = bias;
    is_edited_[static_cast<size_t>(id) / 64] |= uint64_t{1} << (id % 64);
  }
  for (size_t word = 0; word < is_edited_.size(); ++word) {
    for (uint64_t bits = std::exchange(is_edited_[word], 0); bits != 0; bits &= bits - 1) {
      const size_t id = word * 64 + static_cast<size_t>(std::countr_zero(bits));
      LogitEdit edit = std::exchange(edit_of_id_[id], LogitEdit{});
      edit.id = static_cast<int32_t>(id);
      edits_.push_back(edit);
    }
  }
}

SampleNeeds SampleRows::needs() const {
  SampleNeeds needs{};
  for (const SampleParams& row : params_) {
    needs.options |= row.greedy == 0 || row.edited != 0 || row.num_logprobs >= 0;
    needs.cuts |= row.top_k > 0 || row.top_p < kTopPOff;
    needs.cuts_by_weight |= row.top_p < kTopPOff;
    needs.draws |= row.greedy == 0;
    needs.logprobs |= row.num_logprobs >= 0;
    needs.top_logprobs |= row.num_logprobs > 0;
  }
  return needs;
}

SampleLayout SampleRows::layout() const {
  SampleLayout layout{};
  layout.edits = aligned(params_.size() * sizeof(SampleParams));
  layout.masks = layout.edits + aligned(edits_.size() * sizeof(LogitEdit));
  layout.bytes = layout.masks + aligned(masks_.size() * static_cast<size_t>(mask_words()) * sizeof(uint32_t));
  return layout;
}

void SampleRows::write(std::span<std::byte> out) const {
  const SampleLayout at = layout();
  copy_to(out, at.params, params_.data(), params_.size());
  copy_to(out, at.edits, edits_.data(), edits_.size());
  const auto words = static_cast<size_t>(mask_words());
  for (size_t m = 0; m < masks_.size(); ++m) {
    copy_to(out, at.masks + m * words * sizeof(uint32_t), masks_[m], words);
  }
}

void SampleRows::read(std::span<const SampleResult> results, std::span<RowResult> rows) const {
  for (size_t r = 0; r < rows.size(); ++r) {
    const SampleResult& from = results[r];
    const int32_t num_logprobs = params_[r].num_logprobs;
    rows[r] = RowResult{.token = {.id = from.id}, .finite = from.id >= 0};
    if (from.id < 0 || num_logprobs < 0) {
      continue;
    }
    SampledToken& token = rows[r].token;
    token.logprob = from.logprob;
    for (int32_t i = 0; i < std::min(num_logprobs, num_tokens_); ++i) {
      token.top_logprobs.emplace_back(from.top_ids[i], from.top_logprobs[i]);
    }
  }
}

}  // namespace kipp::cuda
