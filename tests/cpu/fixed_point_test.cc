// Products of quantised weights: against double precision, for any number of tokens, and with the same bits on every
// instruction set that fuses a product and a sum.
#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "base/sha256.h"
#include "ops/operator_fixture.h"

namespace kipp {
namespace {

constexpr int32_t kBlock = 32;

// A normal fp16 number of either sign, of magnitude 2^-10 to 2^-5.
template <typename Source>
uint16_t draw_half(Source& draw) {
  const int32_t exponent = draw.integer(5, 9);
  const int32_t sign = draw.integer(0, 1);
  const int32_t mantissa = draw.integer(0, 1023);
  return static_cast<uint16_t>((sign << 15) | (exponent << 10) | mantissa);
}
double half_value(uint16_t bits) {
  const double magnitude = std::ldexp(1024.0 + (bits & 1023), ((bits >> 10) & 31) - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

struct Problem {
  WeightType type;
  int32_t num_tokens, rows, columns;
  std::vector<std::byte> weight;
  std::vector<float> x;

  // Weight in double: exact, scale·q + bias.
  double value(int32_t row, int32_t column) const {
    const ptrdiff_t row_bytes = weight_row_bytes(type, columns);
    const ptrdiff_t block_bytes = row_bytes / (columns / kBlock);
    const std::byte* block = weight.data() + row * row_bytes + column / kBlock * block_bytes;
    uint16_t scale = 0;
    std::memcpy(&scale, block, 2);
    const int32_t i = column % kBlock;
    if (type == WeightType::kQ8_0) {
      return half_value(scale) * static_cast<int8_t>(block[2 + i]);
    }
    uint16_t bias = 0;
    std::memcpy(&bias, block + 2, 2);
    const auto nibbles = static_cast<int32_t>(block[4 + i % 16]);
    return half_value(scale) * (i < 16 ? nibbles & 15 : nibbles >> 4) + half_value(bias);
  }
};

template <typename Source>
Problem draw_problem(Source& draw, WeightType type, int32_t num_tokens, int32_t rows, int32_t columns) {
  Problem problem{type, num_tokens, rows, columns, {}, {}};
  const int32_t num_blocks = rows * (columns / kBlock);
  const auto put_half = [&](uint16_t half) {
    problem.weight.push_back(static_cast<std::byte>(half & 255));
    problem.weight.push_back(static_cast<std::byte>(half >> 8));
  };
  for (int32_t b = 0; b < num_blocks; ++b) {
    put_half(draw_half(draw));
    if (type == WeightType::kAffine4Gs32) {
      put_half(draw_half(draw));
    }
    for (int32_t i = 0; i < (type == WeightType::kQ8_0 ? 32 : 16); ++i) {
      problem.weight.push_back(static_cast<std::byte>(draw.integer(0, 255)));  // also -128, which no encoder writes
    }
  }
  problem.x = draw.floats(static_cast<size_t>(num_tokens) * static_cast<size_t>(columns));
  for (size_t i = 7; i < problem.x.size(); i += 97) {
    problem.x[i] *= 100.0F;  // outliers, as real activations have them
  }
  problem.x = with_poisoned_tail(std::move(problem.x));
  return problem;
}

std::vector<float> run(const OperatorTable& ops, const Problem& problem) {
  const ptrdiff_t stride = problem.rows + 3;
  std::vector<float> out(static_cast<size_t>(stride) * static_cast<size_t>(problem.num_tokens), poison());
  ops.matmul({problem.weight.data(), problem.type, problem.x.data(), out.data(), problem.num_tokens, problem.rows,
              problem.columns, stride});
  return out;
}

// The oracle's activations are FP32: tests/ops/matmul_test.cc.
std::vector<std::string> fixed_point_backends() {
  std::vector<std::string> names = tested_backends();
  std::erase_if(names, [](const std::string& name) { return !name.starts_with("cpu/"); });
  return names;
}

// Whether an instruction set has one rounding for a product and its addition. What every x86-64 has does not.
bool fuses(std::string_view name) {
#if defined(__aarch64__)
  static_cast<void>(name);
  return true;
#else
  return !name.starts_with("cpu/baseline");
#endif
}

class FixedPointTest : public OperatorTest {
 protected:
  // An activation is off by half a step, and a step is at most the run's largest magnitude over 2^14 - 64 (16 bits) or
  // 2^22 - 2^15 (24 bits). Then each block's sum is rounded, and scaled, and added.
  void check(Draw& draw, WeightType type, int32_t num_tokens, int32_t rows, int32_t columns) const {
    const Problem problem = draw_problem(draw, type, num_tokens, rows, columns);
    const std::vector<float> out = run(ops(), problem);
    const bool high = std::string_view(ops().backend).ends_with("high precision");
    const double half_step = 0.5 / (high ? 0x1p22 - 0x1p15 : 0x1p14 - 64.0);
    for (int32_t t = 0; t < num_tokens; ++t) {
      const float* x = problem.x.data() + ptrdiff_t{t} * columns;
      for (int32_t r = 0; r < rows; ++r) {
        double sum = 0.0;
        double bound = 0.0;
        for (int32_t c = 0; c < columns; ++c) {
          const float* run_begin = x + c / kBlock * kBlock;
          const double largest = std::abs(static_cast<double>(*std::max_element(
              run_begin, run_begin + kBlock, [](float a, float b) { return std::abs(a) < std::abs(b); })));
          const double weight = problem.value(r, c);
          sum += weight * static_cast<double>(x[c]);
          // |scale·q| + |bias| is below 3·|weight| or so only on average: 16·2^-5 + 2^-5 bounds it for affine4.
          const double magnitude = type == WeightType::kQ8_0 ? std::abs(weight) : 17.0 * 0x1p-5;
          bound +=
              magnitude * (largest * half_step + gamma(columns / kBlock + 4.0) * std::abs(static_cast<double>(x[c])));
        }
        const float found = out[static_cast<size_t>(t * (rows + 3) + r)];
        ASSERT_LE(std::abs(static_cast<double>(found) - sum), bound)
            << num_tokens << " tokens, " << rows << " × " << columns << ": token " << t << " row " << r;
      }
      for (int32_t r = rows; r < rows + 3; ++r) {
        ASSERT_TRUE(is_poison(out[static_cast<size_t>(t * (rows + 3) + r)])) << "wrote between rows";
      }
    }
  }
};

TEST_P(FixedPointTest, MatchesDoublePrecision) {
  Draw draw(40);
  for (const WeightType type : {WeightType::kQ8_0, WeightType::kAffine4Gs32}) {
    for (int32_t size = 1; size <= 33; ++size) {
      check(draw, type, size, 3, 64);
      check(draw, type, 2, size, 96);
      check(draw, type, 17, size, 96);
    }
    for (const int32_t columns : {32, 192, 1024, 1056, 3072}) {
      check(draw, type, 5, 19, columns);
      check(draw, type, 18, 19, columns);
    }
  }
}

TEST_P(FixedPointTest, ATokensResultDoesNotDependOnItsMates) {
  Draw draw(41);
  for (const WeightType type : {WeightType::kQ8_0, WeightType::kAffine4Gs32}) {
    const Problem all = draw_problem(draw, type, 33, 21, 2080);
    const std::vector<float> together = run(ops(), all);
    for (int32_t t = 0; t < all.num_tokens; ++t) {
      Problem one = all;
      one.num_tokens = 1;
      one.x.erase(one.x.begin(), one.x.begin() + ptrdiff_t{t} * all.columns);
      const std::vector<float> alone = run(ops(), one);
      ASSERT_EQ(std::memcmp(alone.data(), together.data() + t * (all.rows + 3), 21 * sizeof(float)), 0)
          << "token " << t;
    }
  }
}

TEST_P(FixedPointTest, WhatIsNotFiniteStaysSo) {
  Draw draw(42);
  for (const WeightType type : {WeightType::kQ8_0, WeightType::kAffine4Gs32}) {
    for (const float value : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      for (const int32_t num_tokens : {2, 20}) {
        Problem problem = draw_problem(draw, type, num_tokens, 17, 128);
        problem.x[128 + 40] = value;
        const std::vector<float> out = run(ops(), problem);
        for (size_t t = 0; t < static_cast<size_t>(num_tokens); ++t) {
          for (size_t r = 0; r < 17; ++r) {
            EXPECT_EQ(std::isfinite(out[20 * t + r]), t != 1) << "token " << t << " of " << num_tokens;
          }
        }
      }
    }
  }
}

TEST_P(FixedPointTest, ZerosAndTinyActivationsAreExactEnough) {
  Draw draw(43);
  for (const int32_t num_tokens : {2, 20}) {
    Problem problem = draw_problem(draw, WeightType::kQ8_0, num_tokens, 17, 64);
    std::fill(problem.x.begin(), problem.x.begin() + 64, 0.0F);
    std::fill(problem.x.begin() + 64, problem.x.begin() + 128, 0x1p-140F);
    const std::vector<float> out = run(ops(), problem);
    for (size_t r = 0; r < 17; ++r) {
      EXPECT_EQ(out[r], 0.0F);
      EXPECT_LT(std::abs(out[20 + r]), 0x1p-110F);  // whatever is lost below the smallest step
    }
  }
}

// Like Draw, but the same on every machine: the standard defines the numbers of the generator, and not those of
// distributions.
class PortableDraw {
 public:
  explicit PortableDraw(uint64_t seed) : engine_(seed) {}
  int32_t integer(int32_t low, int32_t high) {
    return low + static_cast<int32_t>(engine_() % static_cast<uint64_t>(high - low + 1));
  }
  std::vector<float> floats(size_t count) {
    std::vector<float> values(count);
    std::generate(values.begin(), values.end(), [&] { return static_cast<float>(engine_() >> 40) * 0x1p-23F - 1.0F; });
    return values;
  }

 private:
  std::mt19937_64 engine_;
};

// Instruction sets of different processors never meet in one process, so the bits themselves are written down.
TEST_P(FixedPointTest, BitsAreThoseOfEveryProcessorThatFuses) {
  if (!fuses(GetParam())) {
    GTEST_SKIP() << GetParam() << " rounds products before it adds them";
  }
  PortableDraw draw(46);
  std::vector<float> results;
  for (const WeightType type : {WeightType::kQ8_0, WeightType::kAffine4Gs32}) {
    for (const int32_t num_tokens : {1, 20}) {
      const std::vector<float> out = run(ops(), draw_problem(draw, type, num_tokens, 37, 1056));
      results.insert(results.end(), out.begin(), out.end());
    }
  }
  EXPECT_EQ(sha256_hex(std::as_bytes(std::span(results))),
            GetParam().ends_with("/high") ? "e85e113a414c803bf63fe0ff3f4f40773db053ecf29b96c8ad399aa901ecee95"
                                          : "eca46ed0e507943b738aeb87600a7a89b8dd4d5839a84e998ccdd6fb424c0b87");
}

INSTANTIATE_TEST_SUITE_P(Backends, FixedPointTest, testing::ValuesIn(fixed_point_backends()),
                         [](const auto& tested) { return test_name(tested.param); });

// Whether all instruction sets give the same bits; a baseline that does not fuse them rounds products before it adds.
void expect_same_bits(const Problem& problem, bool high) {
  std::vector<float> expected;
  for (const std::string& name : fixed_point_backends()) {
    if (!fuses(name) || name.ends_with("/high") != high) {
      continue;
    }
    const auto backend = make_tested_backend(name);
    ASSERT_TRUE(backend.has_value());
    const std::vector<float> found = run((*backend)->operators(), problem);
    if (expected.empty()) {
      expected = found;
    }
    EXPECT_EQ(std::memcmp(found.data(), expected.data(), found.size() * sizeof(float)), 0)
        << name << ", type " << static_cast<int>(problem.type) << ", " << problem.num_tokens << " tokens, "
        << problem.rows << " × " << problem.columns;
  }
}

struct Shape {
  int32_t num_tokens, rows, columns;
};

// Around every tile and every buffer: groups of 16 tokens, 512 tokens, 64 rows, 8 and 32 blocks.
constexpr Shape kShapes[] = {{1, 33, 3072},  {9, 50, 2080},   {11, 17, 96},   {12, 17, 96},  {15, 1, 32},
                             {15, 15, 3072}, {16, 1, 64},     {16, 33, 1024}, {17, 15, 256}, {17, 17, 288},
                             {33, 33, 1056}, {100, 70, 1024}, {100, 64, 224}, {513, 17, 96}, {530, 66, 288}};

TEST(FixedPoint, InstructionSetsAgreeBitForBit) {
  Draw draw(44);
  for (const WeightType type : {WeightType::kQ8_0, WeightType::kAffine4Gs32}) {
    for (const Shape& shape : kShapes) {
      const Problem problem = draw_problem(draw, type, shape.num_tokens, shape.rows, shape.columns);
      expect_same_bits(problem, false);
      expect_same_bits(problem, true);
    }
  }
}

// Sums of integers as large as they get: where one is exact only by its bound, it is exact here.
TEST(FixedPoint, InstructionSetsAgreeOnTheLargestSums) {
  Draw draw(45);
  for (const WeightType type : {WeightType::kQ8_0, WeightType::kAffine4Gs32}) {
    for (const int32_t last_bit : {0, 1}) {
      Problem problem = draw_problem(draw, type, 33, 17, 64);
      const ptrdiff_t block_bytes = weight_row_bytes(type, kBlock);
      const ptrdiff_t header = type == WeightType::kQ8_0 ? 2 : 4;
      for (size_t i = 0; i < problem.weight.size(); ++i) {
        if (static_cast<ptrdiff_t>(i) % block_bytes >= header) {
          problem.weight[i] = static_cast<std::byte>(type == WeightType::kQ8_0 ? 0x80 : 0xFF);
        }
      }
      for (size_t i = 0; i < size_t{33} * 64; ++i) {
        // The largest integers of 16 and of 24 bits; then some that make the sums odd.
        const bool high = i / 64 % 2 == 1;
        const bool smaller = last_bit == 1 && i % 32 == i / 64 % 32;
        problem.x[i] = (high ? 8355711.0F : 32639.0F) - (smaller ? 1.0F : 0.0F);
      }
      expect_same_bits(problem, false);
      expect_same_bits(problem, true);
    }
  }
}

}  // namespace
}  // namespace kipp
