// The dynamic programme over prefixes, three rows at a time.
#include "base/suggest.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include <fmt/format.h>

namespace kipp {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before_last(b.size() + 1);
  std::vector<size_t> last(b.size() + 1);
  std::vector<size_t> row(b.size() + 1);
  std::iota(last.begin(), last.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0U : 1U);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
    before_last.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

std::string did_you_mean(std::string_view unknown, std::span<const std::string> names) {
  size_t least = 0;
  const std::string* nearest = nullptr;
  for (const std::string& name : names) {
    const size_t distance = edit_distance(unknown, name);
    const size_t allowed = std::max<size_t>(1, std::max(unknown.size(), name.size()) / 3);
    if (distance <= allowed && (nearest == nullptr || distance < least)) {
      least = distance;
      nearest = &name;
    }
  }
  return nearest == nullptr ? std::string() : fmt::format("; did you mean {}?", *nearest);
}

}  // namespace kipp
