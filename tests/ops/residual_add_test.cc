// One FP32 addition an element: exact equality.
#include "ops/operator_fixture.h"

namespace kipp {
namespace {

class ResidualAddTest : public OperatorTest {};

TEST_P(ResidualAddTest, AddsEveryElementOnce) {
  KIPP_REQUIRE_OPERATOR(residual_add)
  Draw draw(8);
  std::vector<size_t> sizes = {1024, 5120, 25600};
  for (size_t size = 1; size <= 33; ++size) {
    sizes.push_back(size);
  }
  for (const size_t size : sizes) {
    const std::vector<float> before = with_poisoned_tail(draw.floats(size, 1e3F), 1);
    const std::vector<float> y = with_poisoned_tail(draw.floats(size));
    std::vector<float> x = before;
    ops().residual_add({x.data(), y.data(), static_cast<int64_t>(size)});
    for (size_t i = 0; i < size; ++i) {
      ASSERT_EQ(x[i], before[i] + y[i]) << "size " << size << " element " << i;
    }
    EXPECT_TRUE(is_poison(x.back())) << "size " << size;
  }
}

KIPP_OPERATOR_TEST_SUITE(ResidualAddTest);

}  // namespace
}  // namespace kipp
