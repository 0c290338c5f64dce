// Look-up of typed fields. One message for every wrong value; a missing field and null are the same.
#include "cli/fields.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace kipp::cli {
namespace {

std::string shown(const Json& value) {
  constexpr size_t kShown = 60;
  if (value.is_string() && value.as_string().size() <= kShown) {
    return write_json(value);
  }
  return value.is_number() ? value.literal() : std::string(kind_name(value.kind()));
}

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();

std::optional<int32_t> as_token_id(const Json& value) {
  const std::optional<int64_t> wide = value.is_number() ? value.as_int64() : std::nullopt;
  if (!wide || *wide < std::numeric_limits<int32_t>::min() || *wide > std::numeric_limits<uint32_t>::max()) {
    return std::nullopt;
  }
  return static_cast<int32_t>(std::min(*wide, kMaxInt32));
}

std::optional<int32_t> as_int32(const Json& value) {
  const std::optional<int64_t> wide = value.is_number() ? value.as_int64() : std::nullopt;
  if (!wide || *wide < std::numeric_limits<int32_t>::min() || *wide > kMaxInt32) {
    return std::nullopt;
  }
  return static_cast<int32_t>(*wide);
}

}  // namespace

tl::unexpected<Error> wrong_field(std::string_view name, std::string_view expected, const Json* found) {
  return make_error(ErrorCode::kInvalidArgument, fmt::format("field \"{}\": expected {}, found {}", name, expected,
                                                             found != nullptr ? shown(*found) : "nothing"));
}

Result<void> check_field_names(const Json& object, std::span<const std::string_view> known) {
  if (!object.is_object()) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("expected a JSON object on the line, found {}", kind_name(object.kind())));
  }
  for (const auto& [name, value] : object.members()) {
    if (std::ranges::find(known, name) == known.end()) {
      return make_error(ErrorCode::kInvalidArgument, fmt::format("found the unknown field \"{}\"; expected one of {}",
                                                                 name, fmt::join(known, ", ")));
    }
  }
  return {};
}

Result<std::optional<std::string>> string_field(const Json& object, std::string_view name) {
  const Json* value = object.find_value(name);
  if (value == nullptr) {
    return std::nullopt;
  }
  if (!value->is_string()) {
    return wrong_field(name, "a string", value);
  }
  return value->as_string();
}

Result<std::optional<bool>> bool_field(const Json& object, std::string_view name) {
  const Json* value = object.find_value(name);
  if (value == nullptr) {
    return std::nullopt;
  }
  if (!value->is_bool()) {
    return wrong_field(name, "true or false", value);
  }
  return value->as_bool();
}

Result<std::optional<float>> float_field(const Json& object, std::string_view name) {
  const Json* value = object.find_value(name);
  if (value == nullptr) {
    return std::nullopt;
  }
  const std::optional<double> number = value->is_number() ? value->as_double() : std::nullopt;
  if (!number || std::abs(*number) > static_cast<double>(std::numeric_limits<float>::max())) {
    return wrong_field(name, "a number in the range of a 32-bit float", value);
  }
  return static_cast<float>(*number);
}

Result<std::optional<int32_t>> int_field(const Json& object, std::string_view name) {
  const Json* value = object.find_value(name);
  if (value == nullptr) {
    return std::nullopt;
  }
  const std::optional<int32_t> number = as_int32(*value);
  if (!number) {
    return wrong_field(name, "a 32-bit integer", value);
  }
  return number;
}

Result<std::optional<uint64_t>> uint64_field(const Json& object, std::string_view name) {
  const Json* value = object.find_value(name);
  if (value == nullptr) {
    return std::nullopt;
  }
  const std::optional<uint64_t> number = value->is_number() ? value->as_uint64() : std::nullopt;
  if (!number) {
    return wrong_field(name, "an integer from 0 to 2^64 - 1", value);
  }
  return number;
}

Result<std::vector<int32_t>> ids_field(const Json& object, std::string_view name) {
  const Json* value = object.find(name);
  if (value == nullptr || !value->is_array()) {
    return wrong_field(name, "an array of token ids", value);
  }
  std::vector<int32_t> ids;
  ids.reserve(value->items().size());
  for (const Json& item : value->items()) {
    const std::optional<int32_t> id = as_token_id(item);
    if (!id) {
      return wrong_field(fmt::format("{}[{}]", name, ids.size()), "a token id (an integer of 32 bits)", &item);
    }
    ids.push_back(*id);
  }
  return ids;
}

}  // namespace kipp::cli
