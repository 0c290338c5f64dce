// Fields that /v1/completions and /v1/chat/completions share: sampling, limits, stops, streaming, bookkeeping.
#include <algorithm>
#include <charconv>
#include <limits>

#include "server/openai/request_fields.h"

namespace kipp::openai {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr int32_t kMaxInt32 = std::numeric_limits<int32_t>::max();
constexpr size_t kMaxStops = 16;
constexpr size_t kMaxStopCharacters = 256;  // at most the 1,024 bytes that StopMatcher takes
constexpr size_t kMaxStopTokens = 128;
constexpr int32_t kMaxChoices = 128;
constexpr size_t kMaxMetadata = 16;
constexpr size_t kMaxBiases = 1024;  // each choice of each prompt looks at all of them with every token

float float_of(const Json& value) {
  return static_cast<float>(value.as_double().value_or(0.0));
}

int32_t int_of(const Json& value) {
  return static_cast<int32_t>(value.as_int64().value_or(0));
}

// Any 64-bit integer; a negative one in two's complement.
uint64_t seed_of(const Json& value) {
  const std::optional<uint64_t> seed = value.as_uint64();
  return seed ? *seed : static_cast<uint64_t>(value.as_int64().value_or(0));
}

std::vector<std::pair<int32_t, float>> bias_of(const Json& value) {
  std::vector<std::pair<int32_t, float>> bias;
  for (const auto& [key, number] : value.members()) {
    int32_t id = 0;
    std::from_chars(key.data(), key.data() + key.size(), id);
    bias.emplace_back(id, float_of(number));
  }
  return bias;
}

std::vector<std::string> stops_of(const Json& value) {
  if (value.is_string()) {
    return {value.as_string()};
  }
  std::vector<std::string> stops(value.items().size());
  std::ranges::transform(value.items(), stops.begin(), &Json::as_string);
  return stops;
}

void add_sampling(FieldTable<Generation>& table) {
  table
      .add({"temperature", number(0.0, kInfinite),
            "Divides the logits; 0 takes the best token, whatever the other fields say. Default: the checkpoint's."},
           [](const Json& value, Generation& to) { to.sampling.temperature = float_of(value); })
      .add({"top_p", number(0.0, 1.0),
            "Keeps the smallest set of tokens with this much probability; 0 keeps one, 1 is off. Default: the "
            "checkpoint's."},
           [](const Json& value, Generation& to) { to.sampling.top_p = float_of(value); })
      .add({"top_k", integer(-1, kMaxInt32), "Keeps the k best tokens; 0 and -1 are off. Default: the checkpoint's."},
           [](const Json& value, Generation& to) { to.sampling.top_k = std::max(int_of(value), 0); })
      .add({"min_p", number(0.0, 1.0), "Keeps tokens with at least this share of the best one's probability; 0 is off.",
            false, Json::number(int64_t{0})},
           [](const Json& value, Generation& to) { to.sampling.min_p = float_of(value); })
      .add({"presence_penalty", number(-2.0, 2.0), "Subtracted from the logits of tokens that the output has.", false,
            Json::number(int64_t{0})},
           [](const Json& value, Generation& to) { to.sampling.presence_penalty = float_of(value); })
      .add({"frequency_penalty", number(-2.0, 2.0), "The same for each time that the output has them.", false,
            Json::number(int64_t{0})},
           [](const Json& value, Generation& to) { to.sampling.frequency_penalty = float_of(value); })
      .add({"repetition_penalty", number_above(0.0),
            "Divides positive logits of tokens in prompt and output, multiplies negative ones; 1 is off.", false,
            Json::number(int64_t{1})},
           [](const Json& value, Generation& to) { to.sampling.repetition_penalty = float_of(value); })
      .add({"logit_bias", map_of_ids(number(-100.0, 100.0), kMaxBiases),
            "Added to the logits of tokens: `{\"id\": bias}`, at most 1,024. An id that has no token is refused."},
           [](const Json& value, Generation& to) { to.sampling.logit_bias = bias_of(value); })
      .add({"seed", integer(std::numeric_limits<int64_t>::min(), std::numeric_limits<uint64_t>::max()),
            "Any integer of 64 bits. The same request with the same seed has the same answer, whatever else the server "
            "does. Default: drawn anew for each request."},
           [](const Json& value, Generation& to) { to.seed = seed_of(value); });
}

void add_limits(FieldTable<Generation>& table) {
  table
      .add({"n", integer(1, kMaxChoices), "Choices for each prompt.", false, Json::number(int64_t{1})},
           [](const Json& value, Generation& to) { to.n = int_of(value); })
      .add({"max_tokens", integer(0, kMaxInt32), "Tokens of the output at most; the context may end it earlier."},
           [](const Json& value, Generation& to) { to.max_tokens = int_of(value); })
      .add({"min_tokens", integer(0, kMaxInt32), "Tokens before which no stop token and no stop string counts.", false,
            Json::number(int64_t{0})},
           [](const Json& value, Generation& to) { to.min_tokens = int_of(value); })
      .add({"stop",
            one_of({string(1, kMaxStopCharacters),
                    labelled(array(string(1, kMaxStopCharacters), 0, kMaxStops), "an array of at most 16 of them")}),
            "Texts that end the output before them; they are not in it."},
           [](const Json& value, Generation& to) { to.stop = stops_of(value); })
      .add({"stop_token_ids", array(token_id(), 0, kMaxStopTokens),
            "Tokens that end the output besides the checkpoint's own; they are not in it."},
           [](const Json& value, Generation& to) {
             to.stop_token_ids.clear();
             for (const Json& id : value.items()) {
               to.stop_token_ids.push_back(int_of(id));
             }
           })
      .add({"ignore_eos", boolean(), "The checkpoint's own stop tokens do not end the output.", false,
            Json::boolean(false)},
           [](const Json& value, Generation& to) { to.ignore_eos = value.as_bool(); });
}

void add_bookkeeping(FieldTable<Generation>& table) {
  table
      .add({"stream", boolean(), "The answer comes as server-sent events.", false, Json::boolean(false)},
           [](const Json& value, Generation& to) { to.stream = value.as_bool(); })
      .add({"stream_options", object(stream_options_fields().fields()), "Without `stream` it has no effect."},
           [](const Json& value, Generation& to) { stream_options_fields().store(value, to); })
      .add({"priority", integer(std::numeric_limits<int32_t>::min(), kMaxInt32),
            "Lower is served first; equal ones in the order of arrival.", false, Json::number(int64_t{0})},
           [](const Json& value, Generation& to) { to.priority = int_of(value); })
      .add({"cache_salt", string(1, 256), "Only requests with the same salt share cached prompts with each other."},
           [](const Json& value, Generation& to) { to.cache_salt = value.as_string(); })
      .add({"user", string(), "A name for the logs."},
           [](const Json& value, Generation& to) { to.user = value.as_string(); })
      .add({"metadata", map(string(0, 512), kMaxMetadata), "Pairs of texts for the logs."},
           [](const Json& value, Generation& to) {
             to.metadata.clear();
             for (const auto& [key, text] : value.members()) {
               to.metadata.emplace_back(key, text.as_string());
             }
           });
}

}  // namespace

const FieldTable<Generation>& stream_options_fields() {
  static const FieldTable<Generation> table =
      FieldTable<Generation>()
          .add({"include_usage", boolean(), "A last chunk without choices has the usage.", false, Json::boolean(false)},
               [](const Json& value, Generation& to) { to.include_usage = value.as_bool(); })
          .add({"continuous_usage_stats", boolean(), "Every chunk has the usage so far.", false, Json::boolean(false)},
               [](const Json& value, Generation& to) { to.continuous_usage = value.as_bool(); })
          .add(unsupported_field("include_obfuscation", {Json::boolean(false)}));
  return table;
}

const FieldTable<Generation>& generation_fields() {
  static const FieldTable<Generation> table = [] {
    FieldTable<Generation> fields;
    add_sampling(fields);
    add_limits(fields);
    add_bookkeeping(fields);
    return fields;
  }();
  return table;
}

}  // namespace kipp::openai
