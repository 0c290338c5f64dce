// Every kernel does what its operator's contract says, with the same bits in every lane order.
#include <gtest/gtest.h>

#include <optional>
#include <set>

#include "metal/ops/checks.h"

namespace kipp::metal_emulation {
namespace {

class MetalOperatorTest : public testing::TestWithParam<NamedCheck> {
 protected:
  void TearDown() override { set_lane_order(LaneOrder::kAscending); }
};

TEST_P(MetalOperatorTest, IsRightInEveryLaneOrder) {
  std::optional<uint64_t> digest;
  for (const LaneOrder order : kLaneOrders) {
    set_lane_order(order);
    Check check("");
    GetParam().function(check);
    ASSERT_EQ(check.failure(), "");
    EXPECT_EQ(digest.value_or(check.digest()), check.digest()) << "the bits depend on the order of lanes";
    digest = check.digest();
  }
}

INSTANTIATE_TEST_SUITE_P(Operators, MetalOperatorTest, testing::ValuesIn(kChecks),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace kipp::metal_emulation
