// Parses --logit-bias and the sampling fields of a JSON line, and lays the three sources over each other.
#include "cli/sampling_flags.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/fields.h"
#include "cli/number_flag.h"

namespace kipp::cli {
namespace {

constexpr float kBan = -std::numeric_limits<float>::infinity();
constexpr double kMaxBias = 100.0;

// "ID=BIAS", as one occurrence of --logit-bias.
std::pair<int32_t, float> parse_bias(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals != std::string::npos) {
    const auto id = parse_number<int32_t>(std::string_view(text).substr(0, equals));
    const auto bias = parse_number<float>(std::string_view(text).substr(equals + 1));
    if (id && bias) {
      return {*id, *bias};
    }
  }
  throw CLI::ValidationError("--logit-bias", fmt::format("expected ID=BIAS, found \"{}\"", text));
}

using Biases = std::vector<std::pair<int32_t, float>>;

Result<std::optional<Biases>> read_bias_field(const Json& object) {
  constexpr const char* kName = "logit_bias";
  const Json* field = object.find_value(kName);
  if (field == nullptr) {
    return std::nullopt;
  }
  if (!field->is_object()) {
    return wrong_field(kName, "an object of token id to bias", field);
  }
  Biases biases;
  for (const auto& [key, value] : field->members()) {
    const std::optional<int32_t> id = parse_number<int32_t>(key);
    if (!id) {
      const Json found = Json::string(key);
      return wrong_field(kName, "a token id as key", &found);
    }
    const bool is_ban = value.is_string() && value.as_string() == "-inf";
    const std::optional<double> bias = value.as_double();
    // Before it becomes a float: -1e300 would be a ban.
    if (!is_ban && !(bias && std::abs(*bias) <= kMaxBias)) {
      return wrong_field(fmt::format("{}.{}", kName, key), "-100 to 100 or \"-inf\"", &value);
    }
    biases.emplace_back(*id, is_ban ? kBan : static_cast<float>(*bias));
  }
  return biases;
}

template <typename T>
void replace(T& value, const std::optional<T>& choice) {
  value = choice.value_or(value);
}

}  // namespace

void add_sampling_flags(CLI::App& command, SamplingChoices& choices) {
  const std::string group = "Sampling (default: what the artifact records, else temperature 1 and nothing else)";
  const auto add = [&](const char* name, auto& value, const char* type, const char* help) {
    return add_float_flag(command, name, value, help)->type_name(type)->group(group);
  };
  command
      .add_flag_callback(
          "--greedy", [&choices] { choices.greedy = true; }, "Always the best token; the same as --temperature 0")
      ->group(group);
  add("--temperature", choices.temperature, "T", "Divides the logits; 0 is greedy");
  add_number_flag<int32_t>(command, "--top-k", choices.top_k, {.min = 0}, "Only the K best; 0 is off")
      ->type_name("K")
      ->group(group);
  add("--top-p", choices.top_p, "P", "Only the best that together reach P; 1 is off");
  add("--min-p", choices.min_p, "P", "Only those of at least P times the best's probability; 0 is off");
  add("--repetition-penalty", choices.repetition_penalty, "R", "Over prompt and output; 1 is off");
  add("--presence-penalty", choices.presence_penalty, "X", "Over the output, -2 to 2; 0 is off");
  add("--frequency-penalty", choices.frequency_penalty, "X", "Over the output, -2 to 2; 0 is off");
  add_number_flag<uint64_t>(command, "--seed", choices.seed, {.min = 0},
                            "The same seed draws the same tokens; without it one is drawn and printed")
      ->group(group);
  command
      .add_option_function<std::vector<std::string>>(
          "--logit-bias",
          [&choices](const std::vector<std::string>& texts) {
            choices.logit_bias.emplace();
            std::ranges::transform(texts, std::back_inserter(*choices.logit_bias), parse_bias);
          },
          "Added to a token's logit, -100 to 100; -inf bans it; may be repeated")
      ->allow_extra_args(false)
      ->type_name("ID=BIAS")
      ->group(group);
}

Result<SamplingChoices> read_sampling_fields(const Json& object) {
  SamplingChoices choices;
  KIPP_ASSIGN(choices.temperature, float_field(object, "temperature"));
  KIPP_ASSIGN(choices.top_k, int_field(object, "top_k"));
  KIPP_ASSIGN(choices.top_p, float_field(object, "top_p"));
  KIPP_ASSIGN(choices.min_p, float_field(object, "min_p"));
  KIPP_ASSIGN(choices.repetition_penalty, float_field(object, "repetition_penalty"));
  KIPP_ASSIGN(choices.presence_penalty, float_field(object, "presence_penalty"));
  KIPP_ASSIGN(choices.frequency_penalty, float_field(object, "frequency_penalty"));
  KIPP_ASSIGN(choices.logit_bias, read_bias_field(object));
  KIPP_ASSIGN(choices.seed, uint64_field(object, "seed"));
  KIPP_ASSIGN(choices.greedy, bool_field(object, "greedy"));
  return choices;
}

SamplingParams recorded_sampling(const SamplingDefaults& recorded) {
  SamplingParams params;
  replace(params.temperature, recorded.temperature);
  replace(params.top_p, recorded.top_p);
  params.top_k = static_cast<int32_t>(recorded.top_k.value_or(0));
  return params;
}

void apply(const SamplingChoices& choices, SamplingParams& params) {
  replace(params.temperature, choices.temperature);
  replace(params.top_k, choices.top_k);
  replace(params.top_p, choices.top_p);
  replace(params.min_p, choices.min_p);
  replace(params.repetition_penalty, choices.repetition_penalty);
  replace(params.presence_penalty, choices.presence_penalty);
  replace(params.frequency_penalty, choices.frequency_penalty);
  replace(params.logit_bias, choices.logit_bias);
  if (choices.greedy.value_or(false)) {
    params.temperature = 0.0F;
  }
}

SamplingChoices layered(const SamplingChoices& below, const SamplingChoices& above) {
  const auto pick = [](const auto& lower, const auto& upper) { return upper ? upper : lower; };
  return {.temperature = pick(below.temperature, above.temperature),
          .top_k = pick(below.top_k, above.top_k),
          .top_p = pick(below.top_p, above.top_p),
          .min_p = pick(below.min_p, above.min_p),
          .repetition_penalty = pick(below.repetition_penalty, above.repetition_penalty),
          .presence_penalty = pick(below.presence_penalty, above.presence_penalty),
          .frequency_penalty = pick(below.frequency_penalty, above.frequency_penalty),
          .logit_bias = pick(below.logit_bias, above.logit_bias),
          .seed = pick(below.seed, above.seed),
          .greedy = above.temperature ? above.greedy : pick(below.greedy, above.greedy)};
}

Result<void> check_sampling(const SamplingChoices& choices) {
  SamplingParams params;
  apply(choices, params);
  return validate(params, kNumTokens);  // generate() checks again, with the tokens that the artifact has
}

}  // namespace kipp::cli
