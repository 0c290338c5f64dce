// Values against their types. Contract in schema.h.
#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "base/suggest.h"
#include "server/openai/schema.h"

namespace kipp::openai {
namespace {

using Kind = Type::Kind;

bool has_kind(const Json& value, const Type& type) {
  switch (type.kind) {
    case Kind::kAny: return true;
    case Kind::kBoolean: return value.is_bool();
    case Kind::kInteger:
    case Kind::kNumber:
    case Kind::kTokenId: return value.is_number();
    case Kind::kString: return value.is_string();
    case Kind::kArray:
      return value.is_array() && (value.items().empty() || has_kind(value.items().front(), type.parts.front()));
    case Kind::kMap:
    case Kind::kObject: return value.is_object();
    case Kind::kOneOf: return std::ranges::any_of(type.parts, [&](const Type& part) { return has_kind(value, part); });
  }
  return false;
}

bool in_range(const Json& number, const Type& type) {
  if (const std::optional<int64_t> value = number.as_int64(); value) {
    return *value >= type.least && (*value < 0 || static_cast<uint64_t>(*value) <= type.most);
  }
  const std::optional<uint64_t> value = number.as_uint64();  // above every int64_t
  return value && *value <= type.most;
}

// As the 32-bit float that it becomes.
bool is_float_in_range(const Json& number, const Type& type) {
  const std::optional<double> wide = number.as_double();
  constexpr double kMax = std::numeric_limits<float>::max();
  if (!wide || *wide > kMax || *wide < -kMax) {
    return false;
  }
  const auto value = static_cast<double>(static_cast<float>(*wide));
  return value <= type.high && (type.above_low ? value > type.low : value >= type.low);
}

bool is_token_id(int64_t id, const Rules& rules) {
  return id >= 0 && id < rules.num_tokens;
}

// Decimal digits without anything before or after, and no zeros in front: each id has one key.
bool is_token_key(std::string_view key, const Rules& rules) {
  int32_t id = -1;
  const auto [stopped, error] = std::from_chars(key.data(), key.data() + key.size(), id);
  const bool is_plain =
      error == std::errc{} && stopped == key.data() + key.size() && (key.size() == 1 || key[0] != '0');
  return is_plain && is_token_id(id, rules);
}

ApiResult<void> check_size(size_t size, std::string_view parts, const Type& type, const Path& path,
                           const Rules& rules) {
  if (size >= type.min_size && size <= type.max_size) {
    return {};
  }
  const std::string found = size == 0 ? "an empty one" : fmt::format("one of {} {}", size, parts);
  return wrong_value(path, expected_text(type, rules), found);
}

ApiResult<void> check_string(const Json& value, const Type& type, const Path& path, const Rules& rules) {
  const std::string& text = value.as_string();
  if (!type.values.empty()) {
    return std::ranges::find(type.values, text) != type.values.end()
               ? ApiResult<void>()
               : wrong_value(path, expected_text(type, rules), found_text(&value));
  }
  return check_size(num_characters(text), "characters", type, path, rules);
}

ApiResult<void> check_array(const Json& value, const Type& type, const Path& path, const Rules& rules) {
  if (auto sized = check_size(value.items().size(), "items", type, path, rules); !sized) {
    return sized;
  }
  for (size_t i = 0; i < value.items().size(); ++i) {
    if (auto item = check(value.items()[i], type.parts.front(), path.item(i), rules); !item) {
      return item;
    }
  }
  return {};
}

ApiResult<void> check_map(const Json& value, const Type& type, const Path& path, const Rules& rules) {
  if (auto sized = check_size(value.members().size(), "members", type, path, rules); !sized) {
    return sized;
  }
  for (const auto& [key, member] : value.members()) {
    const Path member_path = path.member(key);
    if (type.id_keys && !is_token_key(key, rules)) {
      const Json name = Json::string(key);
      return wrong_value(member_path, fmt::format("{} as key", expected_text(token_id(), rules)), found_text(&name));
    }
    if (auto checked = check(member, type.parts.front(), member_path, rules); !checked) {
      return checked;
    }
  }
  return {};
}

ApiResult<void> check_unsupported(const Json& value, const Field& field, const Path& path) {
  const std::string text = write_json(value);
  if (std::ranges::any_of(field.passes, [&](const Json& passing) { return write_json(passing) == text; })) {
    return {};
  }
  std::string reason = "Kipp does not support this field; leave it out";
  for (const Json& passing : field.passes) {
    reason += fmt::format(", or set it to {}", write_json(passing));
  }
  return refuse(path_text(path), "unsupported_parameter", std::move(reason));
}

ApiResult<void> check_field(const Json& object, const Field& field, const Path& path, const Rules& rules) {
  const Json* value = object.find_value(field.name);
  const Path field_path = path.member(field.name);
  if (value == nullptr) {
    return field.required ? refuse(path_text(field_path), "missing_required_parameter",
                                   fmt::format("expected {}, found {}", expected_text(field.type, rules),
                                               found_text(object.find(field.name))))
                          : ApiResult<void>();
  }
  return field.supported ? check(*value, field.type, field_path, rules) : check_unsupported(*value, field, field_path);
}

bool is_known(std::string_view name, const std::vector<Field>& fields) {
  return std::ranges::any_of(fields, [&](const Field& field) { return field.name == name; });
}

ApiResult<void> refuse_unknown(std::string_view name, const std::vector<Field>& fields, const Path& path) {
  std::vector<std::string> names(fields.size());
  std::ranges::transform(fields, names.begin(), &Field::name);
  constexpr size_t kLongest = 64;  // no field's name is longer: nothing is near
  return refuse(path_text(path.member(name)), "unknown_parameter",
                fmt::format("unknown field{}", name.size() > kLongest ? std::string() : did_you_mean(name, names)));
}

ApiResult<void> check_object(const Json& value, const Type& type, const Path& path, const Rules& rules) {
  for (const Field& field : *type.fields) {
    if (auto checked = check_field(value, field, path, rules); !checked) {
      return checked;
    }
  }
  if (rules.lenient) {
    return {};
  }
  for (const auto& member : value.members()) {
    if (!is_known(member.first, *type.fields)) {
      return refuse_unknown(member.first, *type.fields, path);
    }
  }
  return {};
}

// The alternative that a value is meant to be: the one of its kind, or the only array, whatever is in it.
const Type* alternative_for(const Json& value, const std::vector<Type>& parts) {
  const auto of_kind = std::ranges::find_if(parts, [&](const Type& part) { return has_kind(value, part); });
  if (of_kind != parts.end()) {
    return &*of_kind;
  }
  const auto is_array = [](const Type& part) { return part.kind == Kind::kArray; };
  const bool only_one = value.is_array() && std::ranges::count_if(parts, is_array) == 1;
  return only_one ? &*std::ranges::find_if(parts, is_array) : nullptr;
}

ApiResult<void> check_one_of(const Json& value, const Type& type, const Path& path, const Rules& rules) {
  const Type* part = alternative_for(value, type.parts);
  return part != nullptr ? check(value, *part, path, rules)
                         : wrong_value(path, expected_text(type, rules), found_text(&value));
}

}  // namespace

ApiResult<void> check(const Json& value, const Type& type, const Path& path, const Rules& rules) {
  const auto verdict = [&](bool good) {
    return good ? ApiResult<void>() : wrong_value(path, expected_text(type, rules), found_text(&value));
  };
  // The items of an array are checked one by one, so that the refusal names the item.
  const bool is_array = type.kind == Kind::kArray && value.is_array();
  if (type.kind == Kind::kOneOf) {
    return check_one_of(value, type, path, rules);
  }
  if (!is_array && !has_kind(value, type)) {
    return verdict(false);
  }
  switch (type.kind) {
    case Kind::kAny:
    case Kind::kOneOf:
    case Kind::kBoolean: return {};
    case Kind::kInteger: return verdict(in_range(value, type));
    case Kind::kNumber: return verdict(is_float_in_range(value, type));
    case Kind::kTokenId: return verdict(is_token_id(value.as_int64().value_or(-1), rules));
    case Kind::kString: return check_string(value, type, path, rules);
    case Kind::kArray: return check_array(value, type, path, rules);
    case Kind::kMap: return check_map(value, type, path, rules);
    case Kind::kObject: return check_object(value, type, path, rules);
  }
  return {};
}

Json without_unknown_fields(const Json& value, const Type& type) {
  if (type.kind == Kind::kOneOf) {
    const Type* part = alternative_for(value, type.parts);
    return part != nullptr ? without_unknown_fields(value, *part) : value;
  }
  if (type.kind == Kind::kArray && value.is_array()) {
    std::vector<Json> items;
    for (const Json& item : value.items()) {
      items.push_back(without_unknown_fields(item, type.parts.front()));
    }
    return Json::array(std::move(items));
  }
  if (type.kind != Kind::kObject || !value.is_object()) {
    return value;
  }
  std::vector<Json::Member> members;
  for (const Field& field : *type.fields) {
    if (const Json* found = value.find_value(field.name); found != nullptr) {
      members.emplace_back(field.name, without_unknown_fields(*found, field.type));
    }
  }
  return Json::object(std::move(members));
}

}  // namespace kipp::openai
