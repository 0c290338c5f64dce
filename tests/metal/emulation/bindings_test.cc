// What Metal's validation refuses before anything runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "metal/dispatching.h"

namespace kipp::metal_emulation {
namespace {

using testing::HasSubstr;

struct ScaleArgs {
  uint32_t count;
  float offset;
};

class MetalBindingsTest : public testing::Test {
 protected:
  MetalBindingsTest() : x_(64, 2.0F), out_(64, 0.0F) {}

  Dispatch scale() {
    return {.function = "kipp_case_scale",
            .constants = {{0, {uint32_t{3}}}, {3, {true}}},
            .buffers = {{0, buffer(std::as_const(x_))}, {1, buffer(out_)}},
            .bytes = {{2, bytes_of(ScaleArgs{64, 0.5F})}},
            .threadgroups = {2},
            .threads_per_threadgroup = {32}};
  }
  void expect_refused(const std::function<void(Dispatch&)>& change, const char* message) {
    Dispatch dispatch = scale();
    change(dispatch);
    const auto result = run(dispatch);
    ASSERT_FALSE(result) << message;
    EXPECT_THAT(result.error().message, HasSubstr(message));
  }

  std::vector<float> x_, out_;
};

TEST_F(MetalBindingsTest, WhatIsRightRuns) {
  const auto result = run(scale());
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(out_, std::vector<float>(64, -6.5F));
  Dispatch from_a_buffer = scale();
  std::vector<ScaleArgs> args{{1, 9.0F}, {64, 1.0F}};
  from_a_buffer.bytes.clear();
  from_a_buffer.buffers[2] = buffer(std::as_const(args), 1);
  from_a_buffer.constants[3] = {false};
  ASSERT_TRUE(run(from_a_buffer));
  EXPECT_EQ(out_, std::vector<float>(64, 7.0F));
}

TEST_F(MetalBindingsTest, WhatIsUnboundIsRefused) {
  expect_refused([](Dispatch& d) { d.function = "kipp_nothing"; }, "no kernel is called kipp_nothing");
  expect_refused([](Dispatch& d) { d.buffers.erase(0); }, "buffer 0 (x) is not bound");
  expect_refused([](Dispatch& d) { d.bytes.erase(2); }, "buffer 2 (args) is not bound");
  expect_refused([](Dispatch& d) { d.constants.erase(3); }, "function constant 3 (kNegates) has no value");
}

TEST_F(MetalBindingsTest, WhatIsBoundForNothingIsRefused) {
  expect_refused([](Dispatch& d) { d.buffers[5] = d.buffers[1]; }, "it has no buffer 5");
  expect_refused([](Dispatch& d) { d.bytes[7] = d.bytes[2]; }, "it has no buffer 7");
  expect_refused([](Dispatch& d) { d.threadgroup_memory[0] = 16; }, "it has no threadgroup memory 0");
  expect_refused([](Dispatch& d) { d.constants[1] = {true}; }, "there is no function constant");
}

TEST_F(MetalBindingsTest, WrongTypesAreRefused) {
  expect_refused([](Dispatch& d) { d.constants[0] = {int32_t{3}}; }, "is of type uint, its value of type int");
  expect_refused([](Dispatch& d) { d.bytes[2].pop_back(); }, "buffer 2 (args) of 8 bytes cannot be set to 7 bytes");
  expect_refused([](Dispatch& d) { d.bytes[2].resize(5000); }, "setBytes takes at most 4096 bytes, not 5000");
  expect_refused([](Dispatch& d) { d.buffers[1].read_only = true; }, "buffer 1 (out) is written, but only to be read");
}

TEST_F(MetalBindingsTest, MisalignedOffsetsAreRefused) {
  expect_refused([](Dispatch& d) { d.buffers[0].offset = 2; }, "begins at byte 2, which is no multiple of 4");
  expect_refused([](Dispatch& d) { d.buffers[1].offset = 256; }, "has 256 bytes, but the offset is 256");
}

TEST_F(MetalBindingsTest, SizesAreLimited) {
  expect_refused([](Dispatch& d) { d.threads_per_threadgroup = {1025}; }, "at most 1024");
  expect_refused([](Dispatch& d) { d.threads_per_threadgroup = {0}; }, "threadgroups of 0 threads");
  expect_refused([](Dispatch& d) { d.threads_per_threadgroup = {33}; }, "whole simdgroups");
  expect_refused([](Dispatch& d) { d.threadgroups = {0}; }, "0 threadgroups");
  const auto with_memory = [&](uint32_t bytes) {
    return run({.function = "kipp_case_reverse",
                .buffers = {{0, buffer(out_)}},
                .threadgroup_memory = {{0, bytes}},
                .threads_per_threadgroup = {64}});
  };
  EXPECT_TRUE(with_memory(32768));
  EXPECT_THAT(with_memory(32784).error().message, HasSubstr("32784 bytes of threadgroup memory; at most 32768"));
  EXPECT_THAT(with_memory(250).error().message, HasSubstr("no multiple of 16"));
  EXPECT_THAT(with_memory(0).error().message, HasSubstr("has no length"));
}

TEST_F(MetalBindingsTest, FactsAreTheSources) {
  const auto facts = facts_of("kipp_case_scale");
  ASSERT_TRUE(facts);
  ASSERT_EQ(facts->arguments.size(), 4U);
  EXPECT_EQ(facts->arguments[0].space, "device");
  EXPECT_FALSE(facts->arguments[0].is_written);
  EXPECT_TRUE(facts->arguments[1].is_written);
  EXPECT_EQ(facts->arguments[2].name, "args");
  EXPECT_EQ(facts->arguments[2].element_size, sizeof(ScaleArgs));
  EXPECT_FALSE(facts->arguments[2].is_written);
  ASSERT_EQ(facts->constants.size(), 2U);
  EXPECT_EQ(facts->constants[1].index, 3U);
  EXPECT_EQ(facts->constants[1].type, "bool");
  EXPECT_FALSE(facts_of("kipp_nothing"));
  EXPECT_THAT(functions(), testing::IsSupersetOf({"kipp_case_reverse", "kipp_case_scale", "kipp_fault_no_barrier"}));
}

}  // namespace
}  // namespace kipp::metal_emulation
