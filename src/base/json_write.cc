// JSON writers: compact, and byte for byte what Python's json.dumps(ensure_ascii=False) writes.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "base/json.h"

namespace kipp {
namespace {

// What json.loads makes of a number's text and json.dumps prints again.
std::string python_number(const Json& number) {
  const std::string& literal = number.literal();
  if (literal.find_first_of(".eE") == std::string::npos) {
    return literal == "-0" ? "0" : literal;
  }
  const std::optional<double> value = number.as_double();
  return value ? python_float(*value) : literal;
}

struct Style {
  std::string_view item_separator;
  std::string_view key_separator;
  bool python_numbers;
};

// Recursion is bounded by the depth of the value, which parse_json limits.
void append(std::string& out, const Json& value, const Style& style) {
  switch (value.kind()) {
    case Json::Kind::kNull: out += "null"; return;
    case Json::Kind::kBool: out += value.as_bool() ? "true" : "false"; return;
    case Json::Kind::kNumber: out += style.python_numbers ? python_number(value) : value.literal(); return;
    case Json::Kind::kString: append_json_string(out, value.as_string()); return;
    case Json::Kind::kArray: {
      out += '[';
      std::string_view separator;
      for (const Json& item : value.items()) {
        out += separator;
        append(out, item, style);
        separator = style.item_separator;
      }
      out += ']';
      return;
    }
    case Json::Kind::kObject: {
      out += '{';
      std::string_view separator;
      for (const auto& [key, member] : value.members()) {
        out += separator;
        append_json_string(out, key);
        out += style.key_separator;
        append(out, member, style);
        separator = style.item_separator;
      }
      out += '}';
      return;
    }
  }
}

}  // namespace

// The escapes of Python's json.encoder.ESCAPE, and no others: DEL, U+2028 and non-ASCII text stay as they are.
void append_json_string(std::string& out, std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\b': out += "\\b"; break;
      case '\f': out += "\\f"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default:
        if (byte < 0x20) {
          out += "\\u00";
          out += kHex[byte >> 4U];
          out += kHex[byte & 0xFU];
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

std::string python_float(double value) {
  // Shortest digits that read back, as d.ddde±xx; Python lays the same digits out in its own way.
  std::array<char, 32> buffer{};
  const auto written =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), std::fabs(value), std::chars_format::scientific);
  const std::string_view text(buffer.data(), static_cast<size_t>(written.ptr - buffer.data()));
  const size_t exponent_at = text.find('e');
  std::string digits(text.substr(0, exponent_at));
  std::erase(digits, '.');
  int exponent = 0;
  const size_t exponent_digits = exponent_at + (text[exponent_at + 1] == '+' ? 2 : 1);
  std::from_chars(text.data() + exponent_digits, text.data() + text.size(), exponent);

  std::string out = std::signbit(value) ? "-" : "";
  if (exponent < -4 || exponent >= 16) {  // the bounds of Python's float_repr_style "short"
    out.append(digits, 0, 1);
    if (digits.size() > 1) {
      out.append(1, '.').append(digits, 1);
    }
    return out + fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) {
    return out.append("0.").append(static_cast<size_t>(-exponent - 1), '0') + digits;
  }
  const size_t whole = static_cast<size_t>(exponent) + 1;
  digits.resize(std::max(digits.size(), whole + 1), '0');  // at least one digit after the point
  return out.append(digits, 0, whole).append(1, '.').append(digits, whole);
}

std::string write_json(const Json& value) {
  std::string out;
  append(out, value, Style{",", ":", false});
  return out;
}

std::string write_python_json(const Json& value) {
  std::string out;
  append(out, value, Style{", ", ": ", true});
  return out;
}

}  // namespace kipp
