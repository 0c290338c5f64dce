// JSON with what Kipp needs beyond a convenience parser: member order, duplicate keys refused, the literal text of
// numbers kept, limits on depth and size, UTF-8 and surrogates checked, and Python's json.dumps as an output format.
// Parsing is nlohmann's SAX interface with an own handler.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kipp/error.h"

namespace kipp {

class Json {
 public:
  enum class Kind : uint8_t { kNull, kBool, kNumber, kString, kArray, kObject };
  using Member = std::pair<std::string, Json>;

  Json() = default;  // null
  static Json boolean(bool value);
  static Json number(int64_t value);
  static Json number(double value);                    // shortest text that reads back; must be finite
  static Json number_literal(std::string literal);     // text of a JSON number, kept as it is
  static Json string(std::string value);
  static Json array(std::vector<Json> items = {});
  static Json object(std::vector<Member> members = {});

  Kind kind() const { return kind_; }
  bool is_null() const { return kind_ == Kind::kNull; }
  bool is_bool() const { return kind_ == Kind::kBool; }
  bool is_number() const { return kind_ == Kind::kNumber; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_array() const { return kind_ == Kind::kArray; }
  bool is_object() const { return kind_ == Kind::kObject; }

  bool as_bool() const { return bool_; }
  const std::string& as_string() const { return text_; }    // a string's value
  const std::string& literal() const { return text_; }      // a number's text
  std::optional<int64_t> as_int64() const;                  // exact integers only ("1.0" and "1e3" are not)
  std::optional<uint64_t> as_uint64() const;
  std::optional<double> as_double() const;                  // any number that is finite as a double
  const std::vector<Json>& items() const { return items_; }
  const std::vector<Member>& members() const { return members_; }
  const Json* find(std::string_view key) const;             // nullptr: absent, or not an object

  void push_back(Json item);                                // arrays
  void set(std::string key, Json value);                    // objects; appends or replaces

 private:
  Kind kind_ = Kind::kNull;
  bool bool_ = false;
  std::string text_;
  std::vector<Json> items_;
  std::vector<Member> members_;
};

struct JsonLimits {
  size_t max_depth = 128;
  size_t max_bytes = 64U << 20;
};

// Errors: kInvalidArgument with position and reason (syntax, trailing text, duplicate key, depth, size, broken UTF-8,
// lone surrogate, a number that is not finite as a double and not an integer).
Result<Json> parse_json(std::string_view text, JsonLimits limits = {});

// Compact: no spaces, UTF-8 kept, number literals as they were.
std::string write_json(const Json& value);
// Exactly Python's json.dumps(value, ensure_ascii=False): ", " and ": ", floats as Python prints them, integers exact.
std::string write_python_json(const Json& value);

}  // namespace kipp
