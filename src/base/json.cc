// The JSON value: construction, access and exact conversion of number literals. Contract in json.h.
#include "base/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace kipp {
namespace {

template <typename T>
const T& get_or_empty(const auto& value) {
  static const T kEmpty{};
  const T* found = std::get_if<T>(&value);
  return found != nullptr ? *found : kEmpty;
}

template <typename T>
std::optional<T> exact_integer(std::string_view literal) {
  if (literal == "-0") {
    return T{0};
  }
  T value = 0;
  const char* end = literal.data() + literal.size();
  const auto [stopped, error] = std::from_chars(literal.data(), end, value);
  if (literal.empty() || error != std::errc{} || stopped != end) {
    return std::nullopt;
  }
  return value;
}

// The power of ten of the first digit that is not 0 (2 for 123.4, -3 for 0.001); very negative if there is none.
int64_t decimal_magnitude(std::string_view literal) {
  constexpr int64_t kFar = int64_t{1} << 40;  // no literal has so many digits, no double such an exponent
  const size_t mantissa_end = std::min(literal.find_first_of("eE"), literal.size());
  const std::string_view mantissa = literal.substr(0, mantissa_end);
  const size_t first = mantissa.find_first_of("123456789");
  if (first == std::string_view::npos) {
    return -kFar;
  }
  const auto point = static_cast<int64_t>(std::min(mantissa.find('.'), mantissa.size()));
  const auto digit = static_cast<int64_t>(first);
  const int64_t place = digit < point ? point - digit - 1 : point - digit;
  int64_t exponent = 0;
  bool negative = false;
  for (const char c : literal.substr(mantissa_end)) {
    if (c == '-') {
      negative = true;
    } else if (c >= '0' && c <= '9') {
      exponent = std::min(exponent * 10 + (c - '0'), kFar);
    }
  }
  return place + (negative ? -exponent : exponent);
}

}  // namespace

Json Json::boolean(bool value) {
  Json json;
  json.value_ = value;
  return json;
}

Json Json::number(int64_t value) {
  return number_literal(std::to_string(value));
}

Json Json::number(double value) {
  return std::isfinite(value) ? number_literal(python_float(value)) : Json();
}

Json Json::number_literal(std::string literal) {
  Json json;
  json.value_ = Number{std::move(literal)};
  return json;
}

Json Json::string(std::string value) {
  Json json;
  json.value_ = std::move(value);
  return json;
}

Json Json::array(std::vector<Json> items) {
  Json json;
  json.value_ = std::move(items);
  return json;
}

Json Json::object(std::vector<Member> members) {
  Json json;
  json.value_ = std::move(members);
  return json;
}

bool Json::as_bool() const {
  return get_or_empty<bool>(value_);
}
const std::string& Json::as_string() const {
  return get_or_empty<std::string>(value_);
}
const std::string& Json::literal() const {
  return get_or_empty<Number>(value_).literal;
}
const std::vector<Json>& Json::items() const {
  return get_or_empty<std::vector<Json>>(value_);
}
const std::vector<Json::Member>& Json::members() const {
  return get_or_empty<std::vector<Member>>(value_);
}

std::optional<int64_t> Json::as_int64() const {
  return exact_integer<int64_t>(literal());
}
std::optional<uint64_t> Json::as_uint64() const {
  return exact_integer<uint64_t>(literal());
}

std::optional<double> Json::as_double() const {
  const std::string& text = literal();
  const char* end = text.data() + text.size();
  double value = 0.0;
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || stopped != end) {
    return std::nullopt;
  }
  if (error == std::errc::result_out_of_range) {
    // from_chars does not tell too large from too small; the latter is a zero with the literal's sign.
    return decimal_magnitude(text) > 0 ? std::nullopt : std::optional(text.front() == '-' ? -0.0 : 0.0);
  }
  return error == std::errc{} && std::isfinite(value) ? std::optional(value) : std::nullopt;
}

const Json* Json::find(std::string_view key) const {
  for (const Member& member : members()) {
    if (member.first == key) {
      return &member.second;
    }
  }
  return nullptr;
}

const Json* Json::find_value(std::string_view key) const {
  const Json* value = find(key);
  return value != nullptr && !value->is_null() ? value : nullptr;
}

void Json::push_back(Json item) {
  if (is_null()) {
    value_ = std::vector<Json>();
  }
  if (auto* items = std::get_if<std::vector<Json>>(&value_)) {
    items->push_back(std::move(item));
  }
}

void Json::set(std::string key, Json value) {
  if (is_null()) {
    value_ = std::vector<Member>();
  }
  auto* members = std::get_if<std::vector<Member>>(&value_);
  if (members == nullptr) {
    return;
  }
  const auto found = std::find_if(members->begin(), members->end(), [&](const Member& m) { return m.first == key; });
  if (found != members->end()) {
    found->second = std::move(value);
  } else {
    members->emplace_back(std::move(key), std::move(value));
  }
}

std::string_view kind_name(Json::Kind kind) {
  switch (kind) {
    case Json::Kind::kNull: return "null";
    case Json::Kind::kBool: return "a boolean";
    case Json::Kind::kNumber: return "a number";
    case Json::Kind::kString: return "a string";
    case Json::Kind::kArray: return "an array";
    case Json::Kind::kObject: return "an object";
  }
  return "nothing";
}

}  // namespace kipp
