// Activations as integers for quantised weights: each run of 32 columns of a token has one step, a power of two, and
// signed integers of 16 or 24 bits in bytes (digits of base 256, most significant first). Products with integer weights
// are then exact in 32 bits, so that their sum is the same in any order and on any machine.
#pragma once

#include "backend/cpu/kernels/level.h"
#include "backend/cpu/kernels/simd.h"

namespace kipp::cpu {
namespace {

inline constexpr int32_t kRun = 32;  // columns of a weight block and of a run of activations

// kDigits 2: value = step · (256·d0 + d1); 3: step · (65536·d0 + 256·d1 + d2). Digits lie in [-128, 127].
template <int32_t kDigits>
struct FixedRun {
  int8_t digits[size_t{kDigits}][kRun];
  float step;         // NaN if an activation was not finite
  float sum;          // step · Σ integers
  int32_t high_sum;   // Σ over the run of 256·d0 + d1
  int32_t digit_sum;  // Σ of the last digit; part of high_sum for two digits
};

template <int32_t kDigits>
size_t fixed_bytes(int32_t num_tokens, int32_t columns) {
  return static_cast<size_t>(num_tokens) * static_cast<size_t>(columns / kRun) * sizeof(FixedRun<kDigits>);
}

// The exponent of the largest step at which `largest` has all its bits: integers stay within ±127·(1 + 256 + …).
template <int32_t kDigits>
KIPP_INLINE int32_t step_exponent(float largest) {
  constexpr int32_t kBits = 8 * kDigits - 2;  // below 2^(kBits + 1)
  constexpr float kMost = kDigits == 2 ? 32639.0F : 8355711.0F;
  uint32_t bits = 0;
  __builtin_memcpy(&bits, &largest, sizeof bits);
  auto exponent = static_cast<int32_t>(bits >> 23) - 127;
  exponent = exponent < -100 ? -100 : exponent;  // steps stay normal numbers
  int32_t step = exponent - kBits;
  float inverse = 0.0F;
  const uint32_t inverse_bits = static_cast<uint32_t>(127 - step) << 23;
  __builtin_memcpy(&inverse, &inverse_bits, sizeof inverse);
  return largest * inverse > kMost ? step + 1 : step;
}

KIPP_INLINE float exact_power(int32_t exponent) {
  const uint32_t bits = static_cast<uint32_t>(exponent + 127) << 23;
  float value = 0.0F;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}

template <int32_t kDigits>
void fix_run(const float* x, FixedRun<kDigits>& run) {
  const F16 low = load(x);
  const F16 high = load(x + kLanes);
  float magnitudes[kLanes];
  store(magnitudes, max(absolute(low), absolute(high)));
  float largest = 0.0F;
  for (int32_t i = 0; i < kLanes; ++i) {
    largest = magnitudes[i] > largest ? magnitudes[i] : largest;
  }
  // A NaN passes through the sum, which nothing else does, and infinity times 0 is one.
  const float finite = total(mul(add(low, high), zero()));
  int32_t exponent = 0;
  if (finite == 0.0F) {
    exponent = step_exponent<kDigits>(largest);
  }
  int32_t integers[kRun];
  const F16 inverse = broadcast(finite == 0.0F ? exact_power(-exponent) : 0.0F);
  store_rounded(integers, mul(low, inverse));
  store_rounded(integers + kLanes, mul(high, inverse));
  run.high_sum = 0;
  run.digit_sum = 0;
  int32_t sum = 0;
  for (int32_t i = 0; i < kRun; ++i) {
    const int32_t value = finite == 0.0F ? integers[i] : 0;
    const int32_t last = static_cast<int8_t>(value & 0xFF);
    const int32_t rest = (value - last) / 256;
    const int32_t middle = static_cast<int8_t>(rest & 0xFF);
    if constexpr (kDigits == 2) {
      run.digits[0][i] = static_cast<int8_t>(rest);
      run.digits[1][i] = static_cast<int8_t>(last);
      run.high_sum += value;
    } else {
      run.digits[0][i] = static_cast<int8_t>((rest - middle) / 256);
      run.digits[1][i] = static_cast<int8_t>(middle);
      run.digits[2][i] = static_cast<int8_t>(last);
      run.high_sum += rest;
    }
    run.digit_sum += last;
    sum += value;
  }
  run.step = exact_power(exponent) + finite;  // NaN stays
  run.sum = static_cast<float>(sum) * run.step;
}

template <int32_t kDigits>
void pack_fixed(const PackArgs& args, int32_t token_begin, int32_t token_end) {
  auto* runs = reinterpret_cast<FixedRun<kDigits>*>(args.out);
  const int32_t per_token = args.columns / kRun;
  for (int32_t t = token_begin; t < token_end; ++t) {
    const float* x = args.x + ptrdiff_t{t} * args.columns;
    FixedRun<kDigits>* token = runs + ptrdiff_t{t} * per_token;
    for (int32_t b = 0; b < per_token; ++b) {
      fix_run(x + ptrdiff_t{b} * kRun, token[b]);
    }
  }
}

// A kernel of fixed-point products; all of them pack alike.
template <int32_t kDigits>
constexpr MatmulKernel fixed_kernel(const char* name, int32_t row_tile, void (*multiply)(const MultiplyArgs& args)) {
  return {name, row_tile, 1, fixed_bytes<kDigits>, pack_fixed<kDigits>, multiply};
}

// fp16 bits to FP32, exactly.
KIPP_INLINE float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000U) << 16;
  const uint32_t magnitude = half & 0x7FFFU;
  float value = 0.0F;
  if (magnitude < 0x0400U) {  // zero and subnormal: a multiple of 2^-24
    value = static_cast<float>(magnitude) * 0x1p-24F;
    uint32_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof bits);
    bits |= sign;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
  }
  const uint32_t exponent =
      magnitude >= 0x7C00U ? 0x70000000U : 0x38000000U;  // infinity and NaN keep theirs at the top
  const uint32_t bits = sign | ((magnitude << 13) + exponent);
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}

// What a block of a stored matrix holds, and how a value follows from it: scale·q, or scale·q + bias.
struct Q8Block {
  static constexpr bool kHasBias = false;
  uint16_t scale;  // fp16
  int8_t weights[kRun];
};
struct Affine4Block {
  static constexpr bool kHasBias = true;
  uint16_t scale;             // fp16
  uint16_t bias;              // fp16
  uint8_t nibbles[kRun / 2];  // low halves: elements 0 … 15, high halves: 16 … 31
};
static_assert(sizeof(Q8Block) == 34 && sizeof(Affine4Block) == 20);

KIPP_INLINE float bias_of(const Q8Block& /*block*/) {
  return 0.0F;
}
KIPP_INLINE float bias_of(const Affine4Block& block) {
  return half_to_float(block.bias);
}
KIPP_INLINE void widen_weights(const Q8Block& block, int16_t (&weights)[kRun]) {
  for (int32_t i = 0; i < kRun; ++i) {
    weights[i] = block.weights[i];
  }
}
KIPP_INLINE void widen_weights(const Affine4Block& block, int16_t (&weights)[kRun]) {
  for (int32_t i = 0; i < kRun / 2; ++i) {
    weights[i] = static_cast<int16_t>(block.nibbles[i] & 0x0F);
    weights[i + kRun / 2] = static_cast<int16_t>(block.nibbles[i] >> 4);
  }
}

}  // namespace
}  // namespace kipp::cpu
