// How far two rows of logits are apart: NMSE in double, and argmax with the rule of gates/near_tie.h.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "gates/near_tie.h"

namespace kipp::gates {

// NMSE = Σ(a−b)² / Σb², b the reference; 0 for equal rows of zeros, infinite for others, NaN if anything is.
struct SquaredError {
  double error = 0.0;      // Σ(a−b)²
  double reference = 0.0;  // Σb²

  void add(const SquaredError& other) {
    error += other.error;
    reference += other.reference;
  }
  double nmse() const { return error == 0.0 ? 0.0 : error / reference; }
};

template <typename Reference>
SquaredError squared_error(std::span<const float> found, std::span<const Reference> reference) {
  SquaredError sum;
  for (size_t i = 0; i < reference.size(); ++i) {
    const auto expected = static_cast<double>(reference[i]);
    const double difference = static_cast<double>(found[i]) - expected;
    sum.error += difference * difference;
    sum.reference += expected * expected;
  }
  return sum;
}

enum class Argmax : uint8_t {
  kEqual,
  kNearTie,  // another one, but the reference's logits of the two differ by less than NearTieRule allows
  kDifferent,
};

// Another argmax than the reference's.
struct ArgmaxFlip {
  size_t reference_id = 0;
  size_t found_id = 0;
  double gap = 0.0;            // between the reference's logits of the two
  double allowance = 0.0;      // NearTieRule's
  double rms_deviation = 0.0;  // √(Σ(found − reference)² / vocab)

  bool is_near_tie() const { return gap < allowance; }
  bool is_plain_near_tie() const { return gap < NearTieRule::plain_allowance(rms_deviation); }
};

struct RowComparison {
  SquaredError squares;
  Argmax argmax = Argmax::kEqual;
  bool bitwise = false;  // every float is the reference's
  ArgmaxFlip flip;       // unless kEqual
};

// Rows of equal length. The lowest index of equal values is the largest one's.
RowComparison compare_rows(std::span<const float> found, std::span<const double> reference, const NearTieRule& rule);
RowComparison compare_rows(std::span<const float> found, std::span<const float> reference, const NearTieRule& rule);

// Many rows.
struct Comparison {
  SquaredError squares;  // over all rows: its NMSE is the aggregate Σ/Σ
  double sum_nmse = 0.0;
  double worst_nmse = 0.0;
  int64_t worst_position = -1;
  int64_t num_rows = 0;
  int64_t num_bitwise = 0;
  int64_t num_near_ties = 0;
  int64_t num_different = 0;
  std::vector<std::pair<int64_t, ArgmaxFlip>> flips;  // by position: near ties and different ones

  void add(int64_t position, const RowComparison& row);
  void add(const Comparison& other);  // positions are the other's own: keep them only to name its worst row
  double nmse() const { return squares.nmse(); }
  double mean_nmse() const { return num_rows == 0 ? 0.0 : sum_nmse / static_cast<double>(num_rows); }
};

struct Bounds {
  double nmse = 0.0;             // of the aggregate
  double worst_nmse = INFINITY;  // of a single row
  double near_tie_share = 0.0;   // of the rows
};
inline constexpr double kNearTieShareOfTwins = 0.05;

// What is out of bounds, in words; empty if nothing is. No rows at all is a failure.
std::vector<std::string> violations(const Comparison& comparison, const Bounds& bounds);

Json to_json(const Comparison& comparison);

}  // namespace kipp::gates
