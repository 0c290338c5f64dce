// Every fault is found, whatever the lane order, and by the detector that is for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "metal/dispatching.h"

namespace kipp::metal_emulation {
namespace {

using testing::HasSubstr;

struct Fault {
  const char* function;
  const char* message;  // part of what is said
  bool has_x = false;
  bool has_tile = false;
  uint32_t threadgroups = 1;
};

constexpr Fault kFaults[] = {
    {"kipp_fault_reads_behind", "outside of every buffer: 0 bytes behind the end of x", true},
    {"kipp_fault_writes_before", "writes 4 bytes outside of every buffer: 4 bytes before out"},
    {"kipp_fault_threadgroup_behind", "outside of every buffer: 0 bytes behind the end of tile", false, true},
    {"kipp_fault_unwritten", "reads byte 28 of tile, which this threadgroup has not written", false, true},
    {"kipp_fault_left_over", "which this threadgroup has not written", false, true, 2},
    {"kipp_fault_no_barrier", "tile", false, true},
    {"kipp_fault_no_simdgroup_barrier", "tile", false, true},
    {"kipp_fault_simdgroup_barrier_too_small", "tile", false, true},
    {"kipp_fault_wrong_flags", "race: reads", false, true},
    {"kipp_fault_one_barrier_in_loop", "race: ", false, true},
    {"kipp_fault_threadgroups_share", "race: writes byte", false, false, 2},
    {"kipp_fault_adds_to_one_place", "race: reads byte 0 of out"},
    {"kipp_fault_divergent_barrier", "waits in threadgroup_barrier"},
    {"kipp_fault_two_barriers", "waits in threadgroup_barrier"},
    {"kipp_fault_divergent_lanes", "waits in simd_sum"},
    {"kipp_fault_different_lane_calls", "diverge"},
    {"kipp_fault_reads_poison", "reads poison at byte 244 of x", true},
    {"kipp_fault_writes_constant", "writes to x at byte", true},
};

class MetalDetectorsTest : public testing::TestWithParam<LaneOrder> {
 protected:
  void SetUp() override { set_lane_order(GetParam()); }
  void TearDown() override { set_lane_order(LaneOrder::kAscending); }
};

TEST_P(MetalDetectorsTest, FindEveryFault) {
  for (const Fault& fault : kFaults) {
    std::vector<uint32_t> x(64, 0);
    if (std::string_view(fault.function) == "kipp_fault_reads_poison") x[61] = 0x7FC0DEAD;
    std::vector<float> out(128);
    Dispatch dispatch{.function = fault.function,
                      .threadgroups = {fault.threadgroups},
                      .threads_per_threadgroup = {64},
                      .poison = {{0, 0x7FC0DEAD}}};
    if (fault.has_x) dispatch.buffers[0] = buffer(x);
    dispatch.buffers[fault.has_x ? 1 : 0] = buffer(out);
    if (fault.has_tile) dispatch.threadgroup_memory[0] = 256;
    const auto result = run(dispatch);
    ASSERT_FALSE(result) << fault.function << " went unnoticed";
    EXPECT_THAT(result.error().message, HasSubstr(fault.message)) << fault.function;
    EXPECT_THAT(result.error().message, HasSubstr(fault.function));
  }
}

// What stopped in the middle leaves nothing behind.
TEST_P(MetalDetectorsTest, AFindingDoesNotOutliveItsDispatch) {
  std::vector<float> out(64);
  const Dispatch faulty{
      .function = "kipp_fault_divergent_barrier", .buffers = {{0, buffer(out)}}, .threads_per_threadgroup = {64}};
  std::vector<float> x(64, 3.0F);
  const Dispatch correct{.function = "kipp_case_reverse",
                         .buffers = {{0, buffer(x)}},
                         .threadgroup_memory = {{0, 256}},
                         .threads_per_threadgroup = {64}};
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(run(faulty));
    EXPECT_TRUE(run(correct));
  }
}

TEST_P(MetalDetectorsTest, LookAtEveryAccess) {
  std::vector<float> x(64, 3.0F);
  const uint64_t before = num_checked_accesses();
  ASSERT_TRUE(run({.function = "kipp_case_reverse",
                   .buffers = {{0, buffer(x)}},
                   .threadgroup_memory = {{0, 256}},
                   .threads_per_threadgroup = {64}}));
  EXPECT_EQ(num_checked_accesses() - before, 64U * 3 * 4);
}

INSTANTIATE_TEST_SUITE_P(Orders, MetalDetectorsTest, testing::ValuesIn(kLaneOrders));

}  // namespace
}  // namespace kipp::metal_emulation
