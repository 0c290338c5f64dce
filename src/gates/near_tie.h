// When another argmax is a near tie: docs/decisions/0006-near-ties-of-a-head-with-uneven-rows.md.
#pragma once

#include <cstddef>
#include <span>

namespace kipp::gates {

// A gap of the reference's logits passes as a near tie below 4 times the deviation that the row shows, scaled to the
// two candidates: 4 · rms(found − reference) · ‖w_a − w_b‖ / (√2 · rms‖w‖), w the rows of the output head. With rows
// of equal norm in independent directions the last factor is 1, which leaves the plain 4 · √NMSE · rms(reference).
class NearTieRule {
 public:
  // The last factor is 1 for every pair.
  NearTieRule() = default;
  // head: [vocab][hidden] BF16, and must outlive the rule.
  NearTieRule(std::span<const std::byte> head, size_t hidden);

  // The factor ‖w_a − w_b‖ / (√2 · rms‖w‖) of two ids.
  double scale(size_t a, size_t b) const;
  // Gaps below it are near ties. rms_deviation: √(Σ(found − reference)² / vocab) of the row.
  double allowance(size_t a, size_t b, double rms_deviation) const {
    return plain_allowance(rms_deviation) * scale(a, b);
  }
  // The rule without its last factor, which records give beside it: 4 · √NMSE · rms(reference).
  static double plain_allowance(double rms_deviation) { return 4.0 * rms_deviation; }

 private:
  std::span<const std::byte> head_;
  size_t hidden_ = 0;
  double rms_norm_ = 0.0;  // √(Σ‖w‖² / vocab)
};

}  // namespace kipp::gates
