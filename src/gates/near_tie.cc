// Norms of the head's rows, in double.
#include "gates/near_tie.h"

#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/bf16.h"

namespace kipp::gates {
namespace {

double weight_at(std::span<const std::byte> head, size_t index) {
  uint16_t bits = 0;
  std::memcpy(&bits, head.data() + index * sizeof bits, sizeof bits);
  return static_cast<double>(bf16_to_f32(bits));
}

}  // namespace

NearTieRule::NearTieRule(std::span<const std::byte> head, size_t hidden) : head_(head), hidden_(hidden) {
  const size_t vocab = head.size() / sizeof(uint16_t) / hidden;
  double squares = 0.0;
  for (size_t i = 0; i < vocab * hidden; ++i) {
    const double weight = weight_at(head, i);
    squares += weight * weight;
  }
  rms_norm_ = std::sqrt(squares / static_cast<double>(vocab));
}

double NearTieRule::scale(size_t a, size_t b) const {
  if (head_.empty()) {
    return 1.0;
  }
  double squares = 0.0;
  for (size_t i = 0; i < hidden_; ++i) {
    const double difference = weight_at(head_, a * hidden_ + i) - weight_at(head_, b * hidden_ + i);
    squares += difference * difference;
  }
  return std::sqrt(squares / 2.0) / rms_norm_;
}

}  // namespace kipp::gates
