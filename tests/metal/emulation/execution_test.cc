// What correct kernels compute, in every lane order.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numeric>

#include "base/f16.h"
#include "metal/dispatching.h"

namespace kipp::metal_emulation {
namespace {

class MetalExecutionTest : public testing::TestWithParam<LaneOrder> {
 protected:
  void SetUp() override { set_lane_order(GetParam()); }
  void TearDown() override { set_lane_order(LaneOrder::kAscending); }
  static void expect_runs(const Dispatch& dispatch) {
    const auto result = run(dispatch);
    EXPECT_TRUE(result) << result.error().message;
  }
};

TEST_P(MetalExecutionTest, PositionsAreThoseOfTheGrid) {
  std::vector<uint32_t> out(size_t{8} * 64 * 2 * 3 * 2);
  expect_runs({.function = "kipp_case_positions",
               .buffers = {{0, buffer(out)}},
               .threadgroups = {2, 3, 2},
               .threads_per_threadgroup = {8, 4, 2}});
  for (uint32_t i = 0; i < 64 * 12; ++i) {
    const uint32_t group = i / 64;
    const uint32_t index = i % 64;
    const uint32_t* words = out.data() + size_t{8} * i;
    const std::array<uint32_t, 3> in_group = {index % 8, index / 8 % 4, index / 32};
    const std::array<uint32_t, 3> position = {group % 2, group / 2 % 3, group / 6};
    const std::array<uint32_t, 3> size = {8, 4, 2};
    for (size_t axis = 0; axis < 3; ++axis) {
      ASSERT_EQ(words[axis], in_group[axis]);
      ASSERT_EQ(words[3 + axis], position[axis] * size[axis] + in_group[axis]);
    }
    ASSERT_EQ(words[6], index % 32);
    ASSERT_EQ(words[7], index / 32);
  }
}

TEST_P(MetalExecutionTest, LanesPassValues) {
  std::vector<float> out(size_t{12} * 64);
  expect_runs({.function = "kipp_case_lanes", .buffers = {{0, buffer(out)}}, .threads_per_threadgroup = {64}});
  for (uint32_t i = 0; i < 64; ++i) {
    const uint32_t lane = i % 32;
    const uint32_t base = i - lane + 1;  // value of the simdgroup's first lane
    const auto value = [&](uint32_t of_lane) { return static_cast<float>(base + of_lane); };
    const float sum = static_cast<float>(32 * base + 31 * 16);
    const std::array<float, 12> expected = {value(lane ^ 5),
                                            value(31 - lane),
                                            value(lane + 3 < 32 ? lane + 3 : lane),
                                            value(lane >= 3 ? lane - 3 : lane),
                                            value(7),
                                            value(0),
                                            sum,
                                            value(31),
                                            value(0),
                                            1.0F,
                                            0.0F,
                                            i < 32 ? 0.0F : 1.0F};
    for (size_t k = 0; k < expected.size(); ++k) {
      ASSERT_EQ(out[12 * i + k], expected[k]) << "thread " << i << ", result " << k;
    }
  }
}

TEST_P(MetalExecutionTest, BarriersOrderThreadgroupMemory) {
  std::vector<float> x(256);
  std::iota(x.begin(), x.end(), 0.0F);
  expect_runs({.function = "kipp_case_reverse",
               .buffers = {{0, buffer(x)}},
               .threadgroup_memory = {{0, 512}},
               .threadgroups = {2},
               .threads_per_threadgroup = {128}});
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(x[i], static_cast<float>(i / 128 * 128 + 127 - i % 128));
  }
}

TEST_P(MetalExecutionTest, MatricesMultiply) {
  std::vector<float> a(8 * 16);
  std::vector<float> b(64);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(static_cast<int>(i * 7 % 13) - 6);
  for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(static_cast<int>(i * 5 % 11) - 5);
  std::vector<float> d(64);
  std::vector<float> e(64);
  expect_runs({.function = "kipp_case_matrices",
               .buffers = {{0, buffer(a)}, {1, buffer(b)}, {2, buffer(d)}, {3, buffer(e)}},
               .threadgroup_memory = {{0, 256}},
               .threads_per_threadgroup = {32}});
  for (size_t i = 0; i < 8; ++i) {
    for (size_t j = 0; j < 8; ++j) {
      float sum = 0.0F;
      for (size_t k = 0; k < 8; ++k) sum += a[i * 16 + 8 + k] * b[j * 8 + k];
      ASSERT_EQ(e[j * 8 + i], sum);
      ASSERT_EQ(d[i * 8 + j], sum + 2.0F * a[i * 16 + 8 + j]);
    }
  }
}

TEST_P(MetalExecutionTest, EveryHalfWidensExactly) {
  std::vector<uint16_t> bits(65536);
  std::iota(bits.begin(), bits.end(), uint16_t{0});
  std::vector<float> out(bits.size());
  expect_runs({.function = "kipp_case_halves",
               .buffers = {{0, buffer(std::as_const(bits))}, {1, buffer(out)}},
               .threadgroups = {256},
               .threads_per_threadgroup = {256}});
  for (size_t i = 0; i < out.size(); ++i) {
    const float expected = f16_to_f32(bits[i]);
    ASSERT_TRUE(out[i] == expected || (std::isnan(out[i]) && std::isnan(expected))) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Orders, MetalExecutionTest, testing::ValuesIn(kLaneOrders));

}  // namespace
}  // namespace kipp::metal_emulation
