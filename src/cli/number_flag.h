// Flags whose value is a number: decimal, and a whole one within a range, else a message that says so. CLI11's own
// reading takes 010 for eight, 0x1p-1 for a half, an empty text for zero, and cuts what is too large.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

namespace kipp::cli {

// All of the text, in decimal notation, as a T.
template <typename T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional<T>(value) : std::nullopt;
}

template <typename T>
struct NumberRange {
  T min;
  T max = std::numeric_limits<T>::max();
};

// Throws CLI::ValidationError naming the option, what was expected and what was found.
template <typename T>
T number_of_text(const std::string& name, const std::string& text, NumberRange<T> range) {
  const std::optional<T> value = parse_number<T>(text);
  if (!value || *value < range.min || *value > range.max) {
    throw CLI::ValidationError(
        name, fmt::format("expected a whole number from {} to {}, found \"{}\"", range.min, range.max, text));
  }
  return *value;
}

// An option `name N`. T: int32_t or uint64_t; Value: T or std::optional<T>.
template <typename T, typename Value>
CLI::Option* add_number_flag(CLI::App& command, const std::string& name, Value& value, NumberRange<T> range,
                             const std::string& help) {
  return command
      .add_option_function<std::string>(
          name, [&value, name, range](const std::string& text) { value = number_of_text<T>(name, text, range); }, help)
      ->type_name("N");
}

// An option for a number with a fraction; its range is the caller's to check. Value: float or std::optional<float>.
template <typename Value>
CLI::Option* add_float_flag(CLI::App& command, const std::string& name, Value& value, const std::string& help) {
  return command.add_option_function<std::string>(
      name,
      [&value, name](const std::string& text) {
        const std::optional<float> number = parse_number<float>(text);
        if (!number || !std::isfinite(*number)) {
          throw CLI::ValidationError(name, fmt::format("expected a decimal number, found \"{}\"", text));
        }
        value = *number;
      },
      help);
}

}  // namespace kipp::cli
