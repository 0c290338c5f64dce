// The oracle's arithmetic (docs/numerics.md): every sum over many terms is 16 interleaved FP32 lanes and a fixed tree.
// Plain loops over the lanes, so that a compiler may vectorise them without changing a bit.
#pragma once

#include <cstdint>
#include <span>

#include "base/bf16.h"
#include "base/portable_math.h"
#include "base/seeded_fault.h"

namespace kipp::oracle {

inline constexpr int32_t kLanes = 16;

constexpr float widen(uint16_t bf16) {
  return bf16_to_f32(bf16);
}
constexpr float widen(float value) {
  return value;
}

// Term i belongs to lane i mod 16; a lane adds its terms in ascending order.
struct LaneSum {
  float lanes[kLanes] = {};

  // Lanes l and l + 8, then l and l + 4, l + 2, l + 1.
  float total() const {
    float sums[kLanes];
    for (int32_t l = 0; l < kLanes; ++l) {
      sums[l] = lanes[l];
    }
    for (int32_t half = kLanes / 2; half > 0; half /= 2) {
      for (int32_t l = 0; l < half; ++l) {
        sums[l] += sums[l + half];
      }
    }
    return sums[0];
  }
};

// Adds the products a[i]·b[i], i in [0, count). A long product may come in pieces that start at multiples of 16.
template <typename Element>
inline void add_products(LaneSum& sum, const Element* a, const float* b, int32_t count) {
  LaneSum local = sum;  // a copy that aliases nothing stays in registers
  int32_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int32_t l = 0; l < kLanes; ++l) {
      local.lanes[l] += widen(a[i + l]) * b[i + l];
    }
  }
  if (seeded(Fault::kDroppedTailLanes)) count = i;
  for (int32_t l = 0; i + l < count; ++l) {
    local.lanes[l] += widen(a[i + l]) * b[i + l];
  }
  sum = local;
}

template <typename Element>
inline float dot(const Element* a, const float* b, int32_t count) {
  LaneSum sum;
  add_products(sum, a, b, count);
  return sum.total();
}

// In place: exp(x - max) / Σ exp(x - max). A NaN makes every result NaN.
inline void softmax(std::span<float> x) {
  float maximum = x[0];
  for (const float value : x) {
    maximum = value > maximum ? value : maximum;
  }
  LaneSum sum;
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = exp_f32(x[i] - maximum);
    sum.lanes[i % kLanes] += x[i];
  }
  const float total = sum.total();
  for (float& value : x) {
    value /= total;
  }
}

// A sum of weighted vectors: vector j belongs to lane j mod 16, like any other long sum.
class WeightedSum {
 public:
  // lanes: scratch of 16 · width floats.
  WeightedSum(float* lanes, int32_t width) : lanes_(lanes), width_(width) {
    for (int32_t i = 0; i < kLanes * width; ++i) {
      lanes[i] = 0.0F;
    }
  }

  template <typename Element>
  void add(int32_t j, float weight, const Element* vector) {
    float* lane = lanes_ + (j % kLanes) * width_;
    for (int32_t d = 0; d < width_; ++d) {
      lane[d] += weight * widen(vector[d]);
    }
  }

  void store(float* out) {
    for (int32_t half = kLanes / 2; half > 0; half /= 2) {
      for (int32_t i = 0; i < half * width_; ++i) {
        lanes_[i] += lanes_[half * width_ + i];
      }
    }
    for (int32_t d = 0; d < width_; ++d) {
      out[d] = lanes_[d];
    }
  }

 private:
  float* lanes_;  // [16][width]
  int32_t width_;
};

}  // namespace kipp::oracle
