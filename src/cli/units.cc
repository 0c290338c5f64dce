// Three significant digits and the unit.
#include "cli/units.h"

#include <array>
#include <span>
#include <string_view>

#include <fmt/format.h>

namespace kipp::cli {
namespace {

std::string scaled(double value, double step, std::span<const std::string_view> units) {
  size_t unit = 0;
  while (value >= step && unit + 1 < units.size()) {
    value /= step;
    ++unit;
  }
  const std::string_view separator = units[unit].empty() ? "" : " ";
  if (unit == 0) {
    return fmt::format("{:.0f}{}{}", value, separator, units[unit]);
  }
  const int digits = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f}{}{}", value, digits, separator, units[unit]);
}

}  // namespace

std::string bytes_text(uint64_t bytes) {
  static constexpr std::array<std::string_view, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  return scaled(static_cast<double>(bytes), 1024.0, kUnits);
}

std::string count_text(int64_t count) {
  static constexpr std::array<std::string_view, 4> kUnits = {"", "K", "M", "B"};
  return scaled(static_cast<double>(count), 1000.0, kUnits);
}

}  // namespace kipp::cli
