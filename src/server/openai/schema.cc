// Types: how they are made and how refusals name them. Contract in schema.h.
#include "server/openai/schema.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace kipp::openai {
namespace {

constexpr size_t kShownBytes = 60;

bool is_continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U;
}

std::string sized_text(const Type& type, std::string_view thing, std::string_view parts) {
  if (type.min_size == 0 && type.max_size == kNoLimit) {
    return std::string(thing);
  }
  if (type.max_size == kNoLimit) {
    return fmt::format("{} that is not empty", thing);
  }
  if (type.min_size == 0) {
    return fmt::format("{} of at most {} {}", thing, type.max_size, parts);
  }
  return fmt::format("{} of {} to {} {}", thing, type.min_size, type.max_size, parts);
}

std::string integer_text(const Type& type) {
  constexpr uint64_t kOpen = std::numeric_limits<int32_t>::max();  // a limit of the machine, not of the field
  return type.most == kOpen && type.least >= 0 ? fmt::format("an integer of at least {}", type.least)
                                               : fmt::format("an integer from {} to {}", type.least, type.most);
}

std::string number_text(const Type& type) {
  if (!std::isinf(type.high)) {
    return fmt::format("a number from {} to {}", type.low, type.high);
  }
  return fmt::format("a number {} {}", type.above_low ? "above" : "of at least", type.low);
}

std::string values_text(const std::vector<std::string>& values) {
  std::vector<std::string> quoted(values.size());
  std::ranges::transform(values, quoted.begin(), [](const std::string& value) { return fmt::format("\"{}\"", value); });
  return fmt::format("{}", fmt::join(quoted, " or "));
}

std::string alternatives_text(const Type& type, const Rules& rules) {
  std::vector<std::string> texts(type.parts.size());
  std::ranges::transform(type.parts, texts.begin(), [&](const Type& part) { return expected_text(part, rules); });
  return fmt::format("{}", fmt::join(texts, " or "));
}

}  // namespace

Type any_value() {
  return {};
}
Type boolean() {
  return {.kind = Type::Kind::kBoolean};
}
Type integer(int64_t least, uint64_t most) {
  return {.kind = Type::Kind::kInteger, .least = least, .most = most};
}
Type number(double low, double high) {
  return {.kind = Type::Kind::kNumber, .low = low, .high = high};
}
Type number_above(double low) {
  return {.kind = Type::Kind::kNumber, .low = low, .high = std::numeric_limits<double>::infinity(), .above_low = true};
}
Type string(size_t min_size, size_t max_size) {
  return {.kind = Type::Kind::kString, .min_size = min_size, .max_size = max_size};
}
Type choice(std::vector<std::string> values) {
  return {.kind = Type::Kind::kString, .values = std::move(values)};
}
Type token_id() {
  return {.kind = Type::Kind::kTokenId};
}
Type array(Type item, size_t min_size, size_t max_size) {
  return {.kind = Type::Kind::kArray, .min_size = min_size, .max_size = max_size, .parts = {std::move(item)}};
}
Type map(Type value, size_t max_size) {
  return {.kind = Type::Kind::kMap, .max_size = max_size, .parts = {std::move(value)}};
}
Type map_of_ids(Type value, size_t max_size) {
  return {.kind = Type::Kind::kMap, .max_size = max_size, .id_keys = true, .parts = {std::move(value)}};
}
Type object(const std::vector<Field>& fields) {
  return {.kind = Type::Kind::kObject, .fields = &fields};
}
Type one_of(std::vector<Type> alternatives) {
  return {.kind = Type::Kind::kOneOf, .parts = std::move(alternatives)};
}
Type labelled(Type type, std::string label) {
  type.label = std::move(label);
  return type;
}

std::string expected_text(const Type& type, const Rules& rules) {
  if (!type.label.empty()) {
    return type.label;
  }
  switch (type.kind) {
    case Type::Kind::kAny: return "a value";
    case Type::Kind::kBoolean: return "true or false";
    case Type::Kind::kInteger: return integer_text(type);
    case Type::Kind::kNumber: return number_text(type);
    case Type::Kind::kString:
      return type.values.empty() ? sized_text(type, "a string", "characters") : values_text(type.values);
    case Type::Kind::kTokenId: return fmt::format("a token id from 0 to {}", rules.num_tokens - 1);
    case Type::Kind::kArray: return sized_text(type, "an array", "items");
    case Type::Kind::kMap: return sized_text(type, "an object", "members");
    case Type::Kind::kObject: return "an object";
    case Type::Kind::kOneOf: return alternatives_text(type, rules);
  }
  return {};
}

std::string found_text(const Json* value) {
  if (value == nullptr) {
    return "nothing";
  }
  if (value->is_number()) {
    return std::string(clipped(value->literal(), kShownBytes));
  }
  if (value->is_string() && value->as_string().size() <= kShownBytes) {
    return write_json(*value);
  }
  if (value->is_bool()) {
    return value->as_bool() ? "true" : "false";
  }
  return std::string(kind_name(value->kind()));
}

std::string_view clipped(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) {
    return text;
  }
  while (max_bytes > 0 && is_continuation(text[max_bytes])) {
    --max_bytes;
  }
  return text.substr(0, max_bytes);
}

size_t num_characters(std::string_view text) {
  return text.size() - static_cast<size_t>(std::ranges::count_if(text, is_continuation));
}

std::string path_text(const Path& path) {
  if (path.parent == nullptr) {
    return {};
  }
  std::string text = path_text(*path.parent);
  if (path.is_index) {
    return text + fmt::format("[{}]", path.index);
  }
  text += text.empty() ? "" : ".";
  return text.append(clipped(path.key, kShownBytes));
}

tl::unexpected<ApiError> wrong_value(const Path& path, std::string_view expected, std::string_view found) {
  return refuse(path_text(path), "invalid_value", fmt::format("expected {}, found {}", expected, found));
}

}  // namespace kipp::openai
