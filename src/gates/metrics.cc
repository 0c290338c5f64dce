// Row comparisons and what they add up to.
#include "gates/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace kipp::gates {
namespace {

template <typename Reference>
RowComparison compare(std::span<const float> found, std::span<const Reference> reference, const NearTieRule& rule) {
  RowComparison row;
  row.squares = squared_error(found, reference);
  const auto found_best = static_cast<size_t>(std::max_element(found.begin(), found.end()) - found.begin());
  const auto best = static_cast<size_t>(std::max_element(reference.begin(), reference.end()) - reference.begin());
  if (found_best != best) {
    const double rms_deviation = std::sqrt(row.squares.error / static_cast<double>(reference.size()));
    row.flip = {.reference_id = best,
                .found_id = found_best,
                .gap = static_cast<double>(reference[best]) - static_cast<double>(reference[found_best]),
                .allowance = rule.allowance(best, found_best, rms_deviation),
                .rms_deviation = rms_deviation};
    row.argmax = row.flip.is_near_tie() ? Argmax::kNearTie : Argmax::kDifferent;
  }
  return row;
}

}  // namespace

RowComparison compare_rows(std::span<const float> found, std::span<const double> reference, const NearTieRule& rule) {
  return compare(found, reference, rule);
}

RowComparison compare_rows(std::span<const float> found, std::span<const float> reference, const NearTieRule& rule) {
  RowComparison row = compare(found, reference, rule);
  row.bitwise = std::equal(found.begin(), found.end(), reference.begin(), reference.end(),
                           [](float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); });
  return row;
}

void Comparison::add(int64_t position, const RowComparison& row) {
  const double nmse_of_row = row.squares.nmse();
  squares.add(row.squares);
  sum_nmse += nmse_of_row;
  if (num_rows == 0 || !(nmse_of_row <= worst_nmse)) {  // a NaN is worse than any number, and stays
    if (!std::isnan(worst_nmse)) {
      worst_nmse = nmse_of_row;
      worst_position = position;
    }
  }
  num_different += row.argmax == Argmax::kDifferent ? 1 : 0;
  if (row.argmax != Argmax::kEqual) {
    flips.emplace_back(position, row.flip);
  }
  num_near_ties += row.argmax == Argmax::kNearTie ? 1 : 0;
  num_bitwise += row.bitwise ? 1 : 0;
  ++num_rows;
}

void Comparison::add(const Comparison& other) {
  squares.add(other.squares);
  sum_nmse += other.sum_nmse;
  if (num_rows == 0 || (!(other.worst_nmse <= worst_nmse) && !std::isnan(worst_nmse))) {
    worst_nmse = other.worst_nmse;
    worst_position = other.worst_position;
  }
  flips.insert(flips.end(), other.flips.begin(), other.flips.end());
  num_rows += other.num_rows;
  num_bitwise += other.num_bitwise;
  num_near_ties += other.num_near_ties;
  num_different += other.num_different;
}

std::vector<std::string> violations(const Comparison& comparison, const Bounds& bounds) {
  std::vector<std::string> found;
  if (comparison.num_rows == 0) {
    found.push_back("nothing was compared");
    return found;
  }
  if (!(comparison.nmse() <= bounds.nmse)) {
    found.push_back(fmt::format("NMSE {:.3g} exceeds {:.3g}; the worst row is {:.3g} at position {}", comparison.nmse(),
                                bounds.nmse, comparison.worst_nmse, comparison.worst_position));
  }
  if (!(comparison.worst_nmse <= bounds.worst_nmse)) {
    found.push_back(fmt::format("NMSE {:.3g} at position {} exceeds {:.3g}, the bound of a single row",
                                comparison.worst_nmse, comparison.worst_position, bounds.worst_nmse));
  }
  if (comparison.num_different > 0) {
    const auto& [position, flip] = *std::find_if(comparison.flips.begin(), comparison.flips.end(),
                                                 [](const auto& entry) { return !entry.second.is_near_tie(); });
    found.push_back(
        fmt::format("another argmax at {} of {} positions, first at {}: id {} instead of {}, {:.3g} apart "
                    "in the reference where a near tie is below {:.3g}",
                    comparison.num_different, comparison.num_rows, position, flip.found_id, flip.reference_id, flip.gap,
                    flip.allowance));
  }
  if (static_cast<double>(comparison.num_near_ties) >
      bounds.near_tie_share * static_cast<double>(comparison.num_rows)) {
    found.push_back(fmt::format("{} near ties of {} positions exceed a share of {}", comparison.num_near_ties,
                                comparison.num_rows, bounds.near_tie_share));
  }
  return found;
}

Json to_json(const Comparison& comparison) {
  Json flips = Json::array();
  for (const auto& [position, flip] : comparison.flips) {
    flips.push_back(Json::object({{"position", Json::number(position)},
                                  {"reference_id", Json::number(static_cast<int64_t>(flip.reference_id))},
                                  {"found_id", Json::number(static_cast<int64_t>(flip.found_id))},
                                  {"gap", Json::number(flip.gap)},
                                  {"allowance", Json::number(flip.allowance)},
                                  {"rms_deviation", Json::number(flip.rms_deviation)},
                                  {"near_tie", Json::boolean(flip.is_near_tie())},
                                  {"near_tie_by_the_plain_rule", Json::boolean(flip.is_plain_near_tie())}}));
  }
  return Json::object({{"positions", Json::number(comparison.num_rows)},
                       {"nmse", Json::number(comparison.nmse())},
                       {"mean_nmse", Json::number(comparison.mean_nmse())},
                       {"worst_nmse", Json::number(comparison.worst_nmse)},
                       {"worst_position", Json::number(comparison.worst_position)},
                       {"argmax_different", Json::number(comparison.num_different)},
                       {"near_ties", Json::number(comparison.num_near_ties)},
                       {"argmax_flips", std::move(flips)}});
}

}  // namespace kipp::gates
