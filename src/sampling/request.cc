// Checks in the order in which their errors are reported: request, parameters, then ids of the history.
#include "sampling/request.h"

#include <fmt/format.h>

#include <limits>

#include "base/seeded_fault.h"
#include "sampling/philox.h"
#include "sampling/sampling_math.h"

namespace kipp {
namespace {

Result<void> check_ids(const char* list, std::span<const int32_t> ids, size_t vocab) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || static_cast<size_t>(ids[i]) >= vocab) {
      return make_error(ErrorCode::kInvalidArgument,
                        fmt::format("{}[{}] is {}, outside the vocabulary of {}", list, i, ids[i], vocab));
    }
  }
  return {};
}

bool allows(const uint32_t* mask, size_t id) {
  return mask == nullptr || ((mask[id / 32] >> (id % 32)) & 1U) != 0U;
}

}  // namespace

Result<void> check_request(const SampleRequest& request, size_t num_logits, int32_t num_tokens) {
  if (num_tokens < 1 || num_tokens > kMaxCandidates || static_cast<size_t>(num_tokens) > num_logits) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("num_tokens must be between 1 and {} and at most the {} logits, found {}",
                                  kMaxCandidates, num_logits, num_tokens));
  }
  if (request.params == nullptr) {
    return make_error(ErrorCode::kInvalidArgument, "a sample request needs parameters");
  }
  if (request.choice < 0 || request.position < 0) {
    return make_error(
        ErrorCode::kInvalidArgument,
        fmt::format("choice and position must be at least 0, found {} and {}", request.choice, request.position));
  }
  if (request.num_logprobs < -1 || request.num_logprobs > kMaxLogprobs) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("num_logprobs must be between 0 and {}, or -1 for none, found {}", kMaxLogprobs,
                                  request.num_logprobs));
  }
  return validate(*request.params, num_tokens);
}

bool has_repetition_penalty(const SamplingParams& params) {
  return params.repetition_penalty != 1.0F;
}

bool has_count_penalty(const SamplingParams& params) {
  return params.presence_penalty != 0.0F || params.frequency_penalty != 0.0F;
}

Result<void> check_history(const SampleRequest& request, size_t vocab) {
  if (!has_repetition_penalty(*request.params) && !has_count_penalty(*request.params)) {
    return {};
  }
  KIPP_TRY(check_ids("output_ids", request.output_ids, vocab));
  return check_ids("prompt_ids", request.prompt_ids, vocab);
}

bool leaves_a_token(const SampleRequest& request, int32_t num_tokens) {
  // Each ban takes one id away, since none is named twice.
  int64_t num_bans = 0;
  for (const auto& [id, bias] : request.params->logit_bias) {
    const bool is_ban = bias == -std::numeric_limits<float>::infinity();
    num_bans += is_ban && allows(request.mask, static_cast<size_t>(id)) ? 1 : 0;
  }
  for (int32_t id = 0; id < num_tokens; ++id) {
    if (allows(request.mask, static_cast<size_t>(id)) && num_bans-- == 0) {
      return true;
    }
  }
  return false;
}

tl::unexpected<Error> nothing_to_sample() {
  return make_error(ErrorCode::kInvalidArgument,
                    "every token is excluded: logit_bias bans and the grammar mask leave nothing to sample");
}

uint64_t random_of(const SampleRequest& request) {
  return token_draw(seeded(Fault::kSeedIgnored) ? 0 : request.seed, request.choice, request.position);
}

}  // namespace kipp
