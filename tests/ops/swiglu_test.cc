// SwiGLU against double precision, extremes included.
#include "ops/operator_fixture.h"

namespace kipp {
namespace {

class SwigluTest : public OperatorTest {
 protected:
  void check(std::vector<float> gate, std::vector<float> up, bool in_place) {
    const std::vector<float> gate_in = gate;
    std::vector<float> separate(gate.size() + 1, poison());
    float* out = in_place ? gate.data() : separate.data();
    ops().swiglu({gate.data(), up.data(), out, static_cast<int64_t>(up.size())});
    // exp within one unit in the last place (2 u), the sum, the quotient, the product; e^-x is infinite in FP32 below
    // x = -88.73, where the true quotient is smaller than 89·e^-88.72 < 3e-37.
    constexpr double kTiny = 3e-37;
    for (size_t i = 0; i < up.size(); ++i) {
      const double x = static_cast<double>(gate_in[i]);
      const double reference = x / (1.0 + std::exp(-x)) * static_cast<double>(up[i]);
      ASSERT_LE(std::abs(static_cast<double>(out[i]) - reference),
                gamma(5) * std::abs(reference) + kTiny * std::abs(static_cast<double>(up[i])))
          << "gate " << gate_in[i] << " up " << up[i];
    }
    EXPECT_TRUE(is_poison(separate.back()));
  }
};

TEST_P(SwigluTest, MatchesDoublePrecisionAtEverySize) {
  KIPP_REQUIRE_OPERATOR(swiglu)
  Draw draw(7);
  for (size_t size = 1; size <= 33; ++size) {
    check(draw.floats(size, 8.0F), draw.floats(size, 3.0F), size % 2 == 0);
  }
  check(draw.floats(9728, 100.0F), draw.floats(9728, 10.0F), false);
}

TEST_P(SwigluTest, ExtremesStayFinite) {
  KIPP_REQUIRE_OPERATOR(swiglu)
  const std::vector<float> gate = {0.0F,   -0.0F,   1e-30F, -1e-30F, 88.0F, -88.0F,
                                   -88.8F, -104.0F, 1e4F,   -1e4F,   1e30F, -1e30F};
  check(gate, std::vector<float>(gate.size(), 1.0F), false);
}

KIPP_OPERATOR_TEST_SUITE(SwigluTest);

}  // namespace
}  // namespace kipp
