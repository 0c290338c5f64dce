// Sampling parameters from three places, the later winning: the artifact's recorded generation_config, the flags of the
// command line, the fields of a JSON line.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "gguf/model_file.h"
#include "kipp/error.h"
#include "kipp/sampling.h"

namespace CLI {
class App;
}

namespace kipp::cli {

// What was said; what is unset keeps the value below it.
struct SamplingChoices {
  std::optional<float> temperature;
  std::optional<int32_t> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  std::optional<float> presence_penalty;
  std::optional<float> frequency_penalty;
  std::optional<std::vector<std::pair<int32_t, float>>> logit_bias;
  std::optional<uint64_t> seed;
  std::optional<bool> greedy;
};

void add_sampling_flags(CLI::App& command, SamplingChoices& choices);

// Names of the JSON fields that read_sampling_fields knows.
inline constexpr std::array<std::string_view, 10> kSamplingFields = {
    "temperature",       "top_k",      "top_p", "min_p", "repetition_penalty", "presence_penalty",
    "frequency_penalty", "logit_bias", "seed",  "greedy"};
// logit_bias is an object of id to bias; "-inf" bans. Errors: kInvalidArgument naming the field.
Result<SamplingChoices> read_sampling_fields(const Json& object);

// Temperature 1 and nothing else where the artifact records nothing.
SamplingParams recorded_sampling(const SamplingDefaults& recorded);
void apply(const SamplingChoices& choices, SamplingParams& params);
// What `above` says, and what `below` says where it is silent. A temperature above undoes a greedy below.
SamplingChoices layered(const SamplingChoices& below, const SamplingChoices& above);

// Ranges and ids of what was said. Errors: those of validate().
Result<void> check_sampling(const SamplingChoices& choices);

}  // namespace kipp::cli
