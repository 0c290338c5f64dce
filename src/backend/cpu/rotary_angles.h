// Cosines and sines of the rotary angles of a step's positions, as the operator contract defines them: every layer
// turns Q and K by the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kipp::cpu {

class RotaryAngles {
 public:
  // Makes room for these positions, which must stay until all of them are filled.
  void reset(std::span<const int32_t> positions, int32_t head_dim, float theta);
  // Computes those of positions [begin, end); threads may share the positions.
  void fill(int64_t begin, int64_t end);

  // [positions from `first` on][head_dim / 2]
  const float* cosines(int64_t first) const { return cosines_.data() + offset(first); }
  const float* sines(int64_t first) const { return sines_.data() + offset(first); }

 private:
  ptrdiff_t offset(int64_t position) const { return position * std::ssize(inverse_frequencies_); }

  int32_t head_dim_ = 0;
  float theta_ = 0.0F;
  std::vector<float> inverse_frequencies_;  // [head_dim / 2] of these two
  std::span<const int32_t> positions_;
  std::vector<float> cosines_, sines_;
};

}  // namespace kipp::cpu
