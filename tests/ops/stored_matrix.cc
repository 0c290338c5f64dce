// See stored_matrix.h. Widens fp16 by its definition, not with base/f16.h.
#include "ops/stored_matrix.h"

#include <array>
#include <cmath>

namespace kipp {
namespace {

constexpr int32_t kGroup = 32;
constexpr size_t kTailBytes = 128;

struct Half {
  uint16_t bits;
  double value;
};

Half half_of(int32_t exponent, int32_t fraction, bool negative) {
  const auto bits = static_cast<uint16_t>((negative ? 0x8000 : 0) | exponent << 10 | fraction);
  const double magnitude = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return {bits, negative ? -magnitude : magnitude};
}

// Mostly about 2^-7 to 2^-4; one in eight of any size up to there: subnormal or zero.
Half draw_half(Draw& draw, bool negative) {
  const int32_t lowest = draw.integer(0, 7) == 0 ? 0 : 8;
  const int32_t exponent = draw.integer(lowest, lowest == 0 ? 1 : 10);
  return half_of(exponent, exponent == 0 && draw.integer(0, 3) == 0 ? 0 : draw.integer(0, 1023), negative);
}

class Writer {
 public:
  explicit Writer(StoredMatrix& matrix) : matrix_(matrix) {}

  void byte(int32_t value) { matrix_.data.push_back(static_cast<std::byte>(value & 0xFF)); }
  void half_word(uint16_t bits) {
    byte(bits);
    byte(bits >> 8);
  }
  void weight(double product, double bias) {
    matrix_.weights.push_back(product + bias);  // at most 15 and 11 bits, 2^24 apart: exact in double
    matrix_.magnitudes.push_back(std::abs(product) + std::abs(bias));
  }

 private:
  StoredMatrix& matrix_;
};

void draw_bf16(Draw& draw, Writer& writer) {
  const uint16_t bits = f32_to_bf16(draw.uniform(-1.0F, 1.0F));
  writer.half_word(bits);
  writer.weight(static_cast<double>(bf16_to_f32(bits)), 0.0);
}

void draw_q8_0(Draw& draw, Writer& writer) {
  const Half scale = draw_half(draw, false);
  writer.half_word(scale.bits);
  for (int32_t i = 0; i < kGroup; ++i) {
    const int32_t quant = draw.integer(-127, 127);
    writer.byte(quant);
    writer.weight(scale.value * quant, 0.0);
  }
}

void draw_affine4_gs32(Draw& draw, Writer& writer) {
  const Half scale = draw_half(draw, false);
  const Half bias = draw_half(draw, draw.integer(0, 3) != 0);
  writer.half_word(scale.bits);
  writer.half_word(bias.bits);
  std::array<int32_t, kGroup> quants;
  for (int32_t& quant : quants) {
    quant = draw.integer(0, 15);
    writer.weight(scale.value * quant, bias.value);
  }
  for (size_t i = 0; i < kGroup / 2; ++i) {
    writer.byte(quants[i] | quants[i + kGroup / 2] << 4);
  }
}

}  // namespace

StoredMatrix draw_matrix(Draw& draw, WeightType type, int32_t rows, int32_t columns) {
  StoredMatrix matrix{type, rows, columns, {}, {}, {}};
  Writer writer(matrix);
  const int32_t block = type == WeightType::kBf16 ? 1 : kGroup;
  for (int64_t i = 0; i < int64_t{rows} * columns; i += block) {
    switch (type) {
      case WeightType::kBf16: draw_bf16(draw, writer); break;
      case WeightType::kQ8_0: draw_q8_0(draw, writer); break;
      case WeightType::kAffine4Gs32: draw_affine4_gs32(draw, writer); break;
    }
  }
  matrix.data.resize(matrix.data.size() + kTailBytes, std::byte{0xFF});
  return matrix;
}

}  // namespace kipp
