// Checks of sampling parameters: every error names the field, its range and the value found.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kipp/sampling.h"

namespace kipp {
namespace {

// Written so that NaN is out of every range.
Result<void> check_range(const char* field, float value, float low, float high) {
  if (value >= low && value <= high) {
    return {};
  }
  return make_error(ErrorCode::kInvalidArgument,
                    fmt::format("{} must be between {} and {}, found {}", field, low, high, value));
}

Result<void> check_positive_finite(const char* field, float value, bool zero_allowed) {
  if (std::isfinite(value) && (value > 0.0F || (zero_allowed && value == 0.0F))) {
    return {};
  }
  return make_error(ErrorCode::kInvalidArgument, fmt::format("{} must be finite and {} 0, found {}", field,
                                                             zero_allowed ? "at least" : "greater than", value));
}

Result<void> check_logit_bias(const std::vector<std::pair<int32_t, float>>& logit_bias, int32_t num_tokens) {
  std::vector<int32_t> ids;
  ids.reserve(logit_bias.size());
  for (const auto& [id, bias] : logit_bias) {
    if (id < 0 || id >= num_tokens) {
      return make_error(ErrorCode::kInvalidArgument,
                        fmt::format("logit_bias: expected a token's id, 0 to {}, found {}", num_tokens - 1, id));
    }
    const bool is_ban = bias == -std::numeric_limits<float>::infinity();
    if (!is_ban && !(bias >= -100.0F && bias <= 100.0F)) {
      return make_error(
          ErrorCode::kInvalidArgument,
          fmt::format("logit_bias: the bias of id {} must be between -100 and 100, or -inf to ban it, found {}", id,
                      bias));
    }
    ids.push_back(id);
  }
  if (!std::is_sorted(ids.begin(), ids.end())) {  // every draw asks: who draws often sorts them once
    std::sort(ids.begin(), ids.end());
  }
  const auto repeated = std::adjacent_find(ids.begin(), ids.end());
  if (repeated != ids.end()) {
    return make_error(ErrorCode::kInvalidArgument, fmt::format("logit_bias: id {} is given more than once", *repeated));
  }
  return {};
}

}  // namespace

Result<void> validate(const SamplingParams& params, int32_t num_tokens) {
  KIPP_TRY(check_positive_finite("temperature", params.temperature, true));
  if (params.top_k < 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("top_k must be at least 0 (0 is off), found {}", params.top_k));
  }
  KIPP_TRY(check_range("top_p", params.top_p, 0.0F, 1.0F));
  KIPP_TRY(check_range("min_p", params.min_p, 0.0F, 1.0F));
  KIPP_TRY(check_positive_finite("repetition_penalty", params.repetition_penalty, false));
  KIPP_TRY(check_range("presence_penalty", params.presence_penalty, -2.0F, 2.0F));
  KIPP_TRY(check_range("frequency_penalty", params.frequency_penalty, -2.0F, 2.0F));
  return check_logit_bias(params.logit_bias, num_tokens);
}

}  // namespace kipp
