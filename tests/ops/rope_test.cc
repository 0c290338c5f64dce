// RoPE against long double, from the FP32 angle that the contract fixes.
#include "ops/operator_fixture.h"

namespace kipp {
namespace {

class RopeTest : public OperatorTest {
 protected:
  // The contract's angle: position times the FP32 inverse frequency, rounded to FP32.
  static float angle(float theta, int32_t position, int32_t i, int32_t head_dim) {
    const long double power = std::pow(static_cast<long double>(theta), 2.0L * i / head_dim);
    const float inverse_frequency = 1.0F / static_cast<float>(power);
    return static_cast<float>(position) * inverse_frequency;
  }

  void check(Draw& draw, const std::vector<int32_t>& positions, int32_t num_heads, int32_t head_dim, float theta) {
    const size_t count = positions.size() * static_cast<size_t>(num_heads * head_dim);
    const std::vector<float> before = with_poisoned_tail(draw.floats(count, 4.0F), 1);
    std::vector<float> x = before;
    ops().rope({x.data(), positions.data(), static_cast<int32_t>(positions.size()), num_heads, head_dim, theta});
    const int32_t half = head_dim / 2;
    for (size_t row = 0; row < positions.size() * static_cast<size_t>(num_heads); ++row) {
      const int32_t position = positions[row / static_cast<size_t>(num_heads)];
      for (int32_t i = 0; i < half; ++i) {
        const size_t first = row * static_cast<size_t>(head_dim) + static_cast<size_t>(i);
        const size_t second = first + static_cast<size_t>(half);
        const long double turn = angle(theta, position, i, head_dim);
        check_element(x[first], before[first] * std::cos(turn), -before[second] * std::sin(turn), position, i);
        check_element(x[second], before[second] * std::cos(turn), before[first] * std::sin(turn), position, i);
      }
    }
    EXPECT_TRUE(is_poison(x.back()));
  }

 private:
  // Per product the sine's rounding (at most one unit, 2 u) and the product's own; then one addition.
  static void check_element(float found, long double a, long double b, int32_t position, int32_t i) {
    const auto bound = static_cast<long double>(gamma(4)) * (std::abs(a) + std::abs(b));
    ASSERT_LE(std::abs(static_cast<long double>(found) - (a + b)), bound) << "position " << position << " pair " << i;
  }
};

TEST_P(RopeTest, TurnsEveryPairAtThePositionsOfEveryCheckpoint) {
  KIPP_REQUIRE_OPERATOR(rope)
  Draw draw(9);
  const std::vector<int32_t> positions = {0, 1, 2, 31, 32, 33, 4095, 32767, 40959, 131071, 262142, 262143};
  for (const float theta : {1e6F, 5e6F}) {
    for (const int32_t num_heads : {1, 8, 16, 40, 64}) {
      check(draw, positions, num_heads, 128, theta);
    }
  }
}

TEST_P(RopeTest, WorksAtEverySmallSize) {
  KIPP_REQUIRE_OPERATOR(rope)
  Draw draw(10);
  for (int32_t size = 1; size <= 33; ++size) {
    std::vector<int32_t> positions(static_cast<size_t>(size));
    for (int32_t& position : positions) {
      position = draw.integer(0, 262143);
    }
    check(draw, positions, 1 + size % 3, 2 * size, 1e6F);
  }
}

TEST_P(RopeTest, PositionZeroIsTheIdentity) {
  KIPP_REQUIRE_OPERATOR(rope)
  Draw draw(11);
  const std::vector<float> before = draw.floats(256);
  std::vector<float> x = before;
  const std::vector<int32_t> positions = {0};
  ops().rope({x.data(), positions.data(), 1, 2, 128, 1e6F});
  EXPECT_EQ(x, before);
}

KIPP_OPERATOR_TEST_SUITE(RopeTest);

}  // namespace
}  // namespace kipp
