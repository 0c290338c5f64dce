// GEGLU against double precision: every small size, rows with strides, extremes, NaN, threads.
#include "skeleton/geglu.h"

#include <algorithm>
#include <cstring>
#include <numbers>

#include "ops/operator_fixture.h"

namespace kipp {
namespace {

// Stands in for the backends' OperatorTable; a real operator's suite derives from OperatorTest (tests/ops).
struct GegluTable {
  void (*geglu)(const GegluArgs&);
};

// [rows][columns] with poison between the rows and behind the last.
struct Rows {
  size_t columns, stride;
  std::vector<float> values;

  Rows(size_t num_rows, size_t num_columns, size_t padding)
      : columns(num_columns), stride(num_columns + padding), values(num_rows * stride + 1, poison()) {}

  bool is_inside(size_t i) const { return i + 1 < values.size() && i % stride < columns; }
  void fill(Draw& draw, float magnitude) {
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = is_inside(i) ? draw.uniform(-magnitude, magnitude) : poison();
    }
  }
  float at(size_t r, size_t c) const { return values[r * stride + c]; }
};

enum class Out { kSeparate, kGate, kUp };

class GegluTest : public testing::Test {
 protected:
  GegluTable ops() const { return {oracle::geglu}; }

  static double exponent(double x) { return std::sqrt(8.0 / std::numbers::pi) * (x + 0.044715 * x * x * x); }

  // Seven roundings lead to y, two of them of constants; its terms have one sign, so that they are relative: t in
  // the exponential, of which the share w = e^-y / (1 + e^-y) reaches the sum. Then exp within one unit in the last
  // place (2 u), the sum, the quotient, the product. Above |y| = 104 the exponential is exactly 0 or infinite.
  static double relative_bound(double y) {
    const double t = gamma(7) * std::min(std::abs(y), 104.0);
    const double w = 1.0 / (1.0 + std::exp(y));
    return (1.0 + w * std::expm1(t)) * (1.0 + gamma(5)) - 1.0;
  }

  // e^-y is infinite in FP32 below y = -88.72, where x > -10.1 and the true quotient is smaller than 10.1·e^-88.72; for
  // an x further down it is smaller still.
  static constexpr double kTiny = 4e-38;

  static bool is_close(float found, float gate, float up) {
    const auto x = static_cast<double>(gate);
    const double y = exponent(x);
    const double reference = x / (1.0 + std::exp(-y)) * static_cast<double>(up);
    return std::abs(static_cast<double>(found) - reference) <=
           relative_bound(y) * std::abs(reference) + kTiny * std::abs(static_cast<double>(up));
  }

  // Other strides for every operand, but for the one that out equals.
  void check(Draw& draw, size_t num_rows, size_t columns, size_t padding, Out where) const {
    Rows gate(num_rows, columns, padding);
    Rows up(num_rows, columns, padding + 2);
    Rows separate(num_rows, columns, padding + 1);
    gate.fill(draw, 8.0F);
    up.fill(draw, 3.0F);
    const Rows gate_in = gate;
    const Rows up_in = up;
    Rows& out = where == Out::kGate ? gate : where == Out::kUp ? up : separate;
    ops().geglu({gate.values.data(), up.values.data(), out.values.data(), static_cast<int32_t>(num_rows),
                 static_cast<int32_t>(columns), static_cast<ptrdiff_t>(gate.stride), static_cast<ptrdiff_t>(up.stride),
                 static_cast<ptrdiff_t>(out.stride)});
    for (size_t i = 0; i < out.values.size(); ++i) {
      if (!out.is_inside(i)) {
        ASSERT_TRUE(is_poison(out.values[i])) << "wrote outside the rows, at " << i;
        continue;
      }
      const size_t r = i / out.stride;
      const size_t c = i % out.stride;
      ASSERT_TRUE(is_close(out.values[i], gate_in.at(r, c), up_in.at(r, c)))
          << num_rows << " rows of " << columns << ", row " << r << " column " << c << ": found " << out.values[i]
          << " for gate " << gate_in.at(r, c) << " up " << up_in.at(r, c);
    }
  }
};

TEST_F(GegluTest, MatchesDoublePrecisionAtEverySmallSize) {
  Draw draw(40);
  for (size_t columns = 1; columns <= 33; ++columns) {
    for (const Out where : {Out::kSeparate, Out::kGate, Out::kUp}) {
      ASSERT_NO_FATAL_FAILURE(check(draw, 1 + columns % 5, columns, columns % 4, where));
    }
  }
}

TEST_F(GegluTest, MatchesDoublePrecisionAtTheRegistrysWidths) {
  Draw draw(41);
  for (const int32_t columns : kRegistryWidths) {
    ASSERT_NO_FATAL_FAILURE(check(draw, 3, static_cast<size_t>(columns), 7, Out::kSeparate));
  }
}

TEST_F(GegluTest, ExtremesStayFinite) {
  const std::vector<float> gate = {0.0F,   -0.0F,  1e-30F, -1e-30F, 1e-3F, -1e-3F, 9.9F,  -10.0F, -10.05F,
                                   -10.1F, -11.0F, 1e13F,  -1e13F,  1e30F, -1e30F, 3e38F, -3e38F};
  const std::vector<float> up(gate.size(), 1.0F);
  std::vector<float> out(gate.size(), poison());
  const auto columns = static_cast<int32_t>(gate.size());
  ops().geglu({gate.data(), up.data(), out.data(), 1, columns, columns, columns, columns});
  for (size_t i = 0; i < gate.size(); ++i) {
    EXPECT_TRUE(std::isfinite(out[i]) && is_close(out[i], gate[i], up[i])) << "found " << out[i] << " for " << gate[i];
  }
}

TEST_F(GegluTest, NanStaysInItsElement) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> gate = {1.0F, nan, 1.0F, 1.0F};
  const std::vector<float> up = {2.0F, 2.0F, nan, 2.0F};
  std::vector<float> out(4, 0.0F);
  ops().geglu({gate.data(), up.data(), out.data(), 2, 2, 2, 2, 2});
  EXPECT_TRUE(std::isnan(out[1]) && std::isnan(out[2]));
  EXPECT_TRUE(std::isfinite(out[0]) && out[0] == out[3]);
}

TEST_F(GegluTest, NumberOfThreadsChangesNoBit) {
  Draw draw(42);
  constexpr int32_t kRows = 97;
  constexpr int32_t kColumns = 130;
  const auto gate = draw.floats(size_t{kRows} * (kColumns + 3), 20.0F);
  const auto up = draw.floats(size_t{kRows} * (kColumns + 1));
  std::vector<float> expected(size_t{kRows} * (kColumns + 2), poison());
  std::vector<float> out = expected;
  GegluArgs args{gate.data(), up.data(), expected.data(), kRows, kColumns, kColumns + 3, kColumns + 1, kColumns + 2};
  ops().geglu(args);
  args.out = out.data();
  for (int32_t num_threads = 1; num_threads <= 5; ++num_threads) {
    std::fill(out.begin(), out.end(), poison());
    ThreadPool threads(num_threads);
    oracle::threaded_geglu(threads, args);
    ASSERT_EQ(std::memcmp(out.data(), expected.data(), out.size() * sizeof(float)), 0) << num_threads << " threads";
  }
}

}  // namespace
}  // namespace kipp
