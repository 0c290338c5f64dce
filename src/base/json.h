// JSON with what Kipp needs beyond a convenience parser: member order, duplicate keys refused, the literal text of
// numbers kept, limits on depth and size, UTF-8 and surrogates checked, and Python's json.dumps as an output format.
// Parsing is nlohmann's SAX interface with an own handler (json_parse.cc).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
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
  static Json number(double value);                 // text as python_float's; null if not finite (JSON has no NaN)
  static Json number_literal(std::string literal);  // text of a JSON number, kept as it is
  static Json string(std::string value);
  static Json array(std::vector<Json> items = {});
  static Json object(std::vector<Member> members = {});

  Kind kind() const { return static_cast<Kind>(value_.index()); }
  bool is_null() const { return kind() == Kind::kNull; }
  bool is_bool() const { return kind() == Kind::kBool; }
  bool is_number() const { return kind() == Kind::kNumber; }
  bool is_string() const { return kind() == Kind::kString; }
  bool is_array() const { return kind() == Kind::kArray; }
  bool is_object() const { return kind() == Kind::kObject; }

  // Of another kind than asked for: false, empty, nullopt.
  bool as_bool() const;
  const std::string& as_string() const;                // a string's value
  const std::string& literal() const;                  // a number's text
  std::optional<int64_t> as_int64() const;             // exact integers only ("1.0" and "1e3" are not)
  std::optional<uint64_t> as_uint64() const;           // the same
  std::optional<double> as_double() const;             // any number that is finite as a double
  const std::vector<Json>& items() const;              // an array's
  const std::vector<Member>& members() const;          // an object's, in their order
  const Json* find(std::string_view key) const;        // nullptr: absent, or not an object
  const Json* find_value(std::string_view key) const;  // the same, and null counts as absent

  void push_back(Json item);              // null becomes an array; other kinds than array: no effect
  void set(std::string key, Json value);  // null becomes an object; appends or replaces

 private:
  struct Number {
    std::string literal;
  };
  // In the order of Kind.
  std::variant<std::monostate, bool, Number, std::string, std::vector<Json>, std::vector<Member>> value_;
};

// "null", "a boolean", "a number", "a string", "an array", "an object": for messages.
std::string_view kind_name(Json::Kind kind);

struct JsonLimits {
  size_t max_depth = 128;  // arrays and objects inside one another; more than 1024 is never allowed
  size_t max_bytes = 64U << 20;
  size_t max_values = 4U << 20;  // bounds memory: a value costs up to 100 bytes, but only 2 bytes of text
};

// Errors: kInvalidArgument with the byte offset and reason (syntax, trailing text, duplicate key, limits, broken UTF-8,
// lone surrogate, a number that is not finite as a double). The offset is that of the last byte read.
Result<Json> parse_json(std::string_view text, JsonLimits limits = {});

// Compact: no spaces, UTF-8 kept, number literals as they were.
std::string write_json(const Json& value);
// As write_json() writes a string.
void append_json_string(std::string& out, std::string_view text);
// Exactly Python's json.dumps(json.loads(text), ensure_ascii=False): ", " and ": ", floats as Python prints them,
// integers exact.
std::string write_python_json(const Json& value);
// A finite double as Python's repr prints it: 1.0, 1e+16, 1e-05, -0.0.
std::string python_float(double value);

}  // namespace kipp
