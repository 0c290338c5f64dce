// RMSNorm against double precision. All terms of the mean square are positive, so its error is relative.
#include "ops/operator_fixture.h"

namespace kipp {
namespace {

constexpr float kEpsilon = 1e-6F;

class RmsNormTest : public OperatorTest {
 protected:
  // Square (1), sum, division by columns (1), epsilon (1), all halved by the square root; then square root, reciprocal,
  // and two products (4).
  double relative_bound(int32_t columns) const { return gamma((sum_roundings(ops(), columns) + 3.0) / 2.0 + 4.0); }

  static double expected(std::span<const float> x, std::span<const uint16_t> weight, size_t c) {
    double sum = 0.0;
    for (const float value : x) {
      sum += static_cast<double>(value) * static_cast<double>(value);
    }
    const double mean = sum / static_cast<double>(x.size());
    return static_cast<double>(x[c]) / std::sqrt(mean + static_cast<double>(kEpsilon)) *
           static_cast<double>(bf16_to_f32(weight[c]));
  }

  void check(Draw& draw, int32_t rows, int32_t columns, int32_t padding, bool in_place) {
    const auto stride = static_cast<size_t>(columns + padding);
    std::vector<float> x(stride * static_cast<size_t>(rows), poison());
    for (size_t i = 0; i < x.size(); ++i) {
      if (i % stride < static_cast<size_t>(columns)) {
        x[i] = draw.uniform(-2.0F, 2.0F) * (i % stride + 1 == static_cast<size_t>(columns) ? 16.0F : 1.0F);
      }
    }
    const auto weight = with_poisoned_tail(draw.bf16(static_cast<size_t>(columns), 3.0F));
    const std::vector<float> input = x;
    std::vector<float> separate(x.size(), poison());
    float* out = in_place ? x.data() : separate.data();
    ops().rms_norm({x.data(), weight.data(), out, rows, columns, static_cast<ptrdiff_t>(stride),
                    static_cast<ptrdiff_t>(stride), kEpsilon});
    for (size_t i = 0; i < x.size(); ++i) {
      const size_t row = i / stride;
      const size_t c = i % stride;
      if (c >= static_cast<size_t>(columns)) {
        ASSERT_TRUE(is_poison(out[i])) << "wrote between rows at " << i;
        continue;
      }
      const std::span<const float> row_in(input.data() + row * stride, static_cast<size_t>(columns));
      const double reference = expected(row_in, {weight.data(), static_cast<size_t>(columns)}, c);
      ASSERT_LE(std::abs(static_cast<double>(out[i]) - reference), relative_bound(columns) * std::abs(reference))
          << rows << " rows of " << columns << ", row " << row << " column " << c;
    }
  }
};

TEST_P(RmsNormTest, MatchesDoublePrecisionAtEverySmallSize) {
  KIPP_REQUIRE_OPERATOR(rms_norm)
  Draw draw(2);
  for (int32_t columns = 1; columns <= 33; ++columns) {
    check(draw, 1 + columns % 5, columns, columns % 4, false);
    check(draw, 1 + columns % 5, columns, columns % 4, true);
  }
}

TEST_P(RmsNormTest, MatchesDoublePrecisionAtTheRegistrysWidths) {
  KIPP_REQUIRE_OPERATOR(rms_norm)
  Draw draw(3);
  check(draw, 24, 128, 0, true);  // the per-head norm of Q and K
  for (const int32_t columns : {192, 1024, 2048, 2560, 4096, 5120}) {
    check(draw, 3, columns, 7, false);
  }
}

TEST_P(RmsNormTest, EpsilonKeepsZeroRowsZero) {
  KIPP_REQUIRE_OPERATOR(rms_norm)
  const std::vector<float> x(40, 0.0F);
  const std::vector<uint16_t> weight(40, f32_to_bf16(2.0F));
  std::vector<float> out(40, poison());
  ops().rms_norm({x.data(), weight.data(), out.data(), 1, 40, 40, 40, kEpsilon});
  EXPECT_EQ(out, x);
}

KIPP_OPERATOR_TEST_SUITE(RmsNormTest);

}  // namespace
}  // namespace kipp
