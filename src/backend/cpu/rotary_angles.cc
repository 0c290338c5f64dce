// The angle is rounded to FP32 as in the reference; its sine and cosine are taken in double.
#include "backend/cpu/rotary_angles.h"

#include <cmath>

namespace kipp::cpu {

void RotaryAngles::reset(std::span<const int32_t> positions, int32_t head_dim, float theta) {
  const auto half = static_cast<size_t>(head_dim / 2);
  if (head_dim != head_dim_ || theta != theta_) {
    head_dim_ = head_dim;
    theta_ = theta;
    inverse_frequencies_.resize(half);
    for (size_t i = 0; i < half; ++i) {
      const double exponent = 2.0 * static_cast<double>(i) / head_dim;
      inverse_frequencies_[i] = 1.0F / static_cast<float>(std::pow(static_cast<double>(theta), exponent));
    }
  }
  positions_ = positions;
  cosines_.resize(positions.size() * half);
  sines_.resize(positions.size() * half);
}

void RotaryAngles::fill(int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    const auto position = static_cast<float>(positions_[static_cast<size_t>(t)]);
    float* cosine = cosines_.data() + offset(t);
    float* sine = sines_.data() + offset(t);
    for (const float frequency : inverse_frequencies_) {
      const auto angle = static_cast<double>(position * frequency);
      *cosine++ = static_cast<float>(std::cos(angle));
      *sine++ = static_cast<float>(std::sin(angle));
    }
  }
}

}  // namespace kipp::cpu
