// What the reader of .metal files finds in them, and what it refuses.
#include "metal/emulation/signatures/language.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kipp::metal_emulation {
namespace {

using testing::HasSubstr;

TEST(MetalLanguageTest, ReadsArgumentsAndConstants) {
  const auto source = read_source(R"(
    constant uint kWidth [[function_constant(2)]];  // constant bool kNot [[function_constant(4)]];
    /* kernel void kipp_none() */
    kernel void kipp_one(device const float4* x [[buffer(0)]], constant Args& args [[buffer(1)]],
                         threadgroup float* tile [[threadgroup(0)]], uint3 at [[thread_position_in_grid]],
                         ushort lane [[thread_index_in_simdgroup]]) {}
    kernel void kipp_two(device uint* out [[buffer(3)]], uint i [[thread_position_in_grid]]) {})");
  ASSERT_TRUE(source) << source.error().message;
  ASSERT_EQ(source->functions.size(), 2U);
  const auto& parameters = source->functions[0].parameters;
  ASSERT_EQ(parameters.size(), 5U);
  EXPECT_EQ(parameters[0].name, "x");
  EXPECT_EQ(parameters[0].space, "device");
  EXPECT_EQ(parameters[1].index, 1U);
  EXPECT_EQ(parameters[1].space, "constant");
  EXPECT_EQ(parameters[2].attribute, "threadgroup");
  EXPECT_EQ(parameters[3].attribute, "thread_position_in_grid");
  EXPECT_EQ(source->functions[1].parameters[0].index, 3U);
  ASSERT_EQ(source->constants.size(), 1U);
  EXPECT_EQ(source->constants[0].name, "kWidth");
  EXPECT_EQ(source->constants[0].type, "uint");
  EXPECT_EQ(source->constants[0].index, 2U);
}

TEST(MetalLanguageTest, RefusesWhatMetalWould) {
  const std::pair<const char*, const char*> cases[] = {
      {"kernel void kipp_a(float* x [[buffer(0)]]) {}", "address space"},
      {"kernel void kipp_a(device float x [[buffer(0)]]) {}", "address space"},
      {"kernel void kipp_a(threadgroup float* x [[buffer(0)]]) {}", "address space"},
      {"kernel void kipp_a(device float* x [[threadgroup(0)]]) {}", "address space"},
      {"kernel void kipp_a(device float* x) {}", "one attribute"},
      {"kernel void kipp_a(device float* x [[buffer(kIndex)]]) {}", "a number as its index"},
      {"kernel void kipp_a(device float* x [[buffer(0)]], device float* y [[buffer(0)]]) {}", "buffer 0 is used twice"},
      {"kernel void kipp_a(uint i [[thread_position]]) {}", "unknown attribute thread_position"},
      {"kernel void kipp_a(float i [[thread_position_in_grid]]) {}", "of a type that its attribute does not have"},
      {"kernel void kipp_a(uint2 i [[thread_index_in_simdgroup]]) {}", "i is one number"},
      {"kernel void kipp_a(uint i [[thread_position_in_grid]], uint2 j [[threadgroup_position_in_grid]]) {}",
       "different numbers of dimensions"},
      {"kernel void other(device float* x [[buffer(0)]]) {}", "does not begin with kipp_"},
      {"kernel int kipp_a(device float* x [[buffer(0)]]) {}", "kernel void kipp_name("},
      {"constant uint kA [[function_constant(0)]];\nconstant bool kB [[function_constant(0)]];",
       "line 2: function constant 0"},
      {"\n\nstruct A : B {};", "line 3: Metal has no derived classes"},
      {"void f() { auto g = [&](int x) { return x; }; }", "lambda"},
      {"void f() { g([] { return 1; }); }", "lambda"},
      {"void f() {\n  threadgroup float tile[4][8];\n}", "line 2: threadgroup memory comes as an argument"},
      {"void f() { threadgroup uint count; }", "threadgroup memory comes as an argument"},
  };
  for (const auto& [text, message] : cases) {
    const auto source = read_source(text);
    ASSERT_FALSE(source) << text;
    EXPECT_THAT(source.error().message, HasSubstr(message)) << text;
  }
}

TEST(MetalLanguageTest, AllowsWhatLooksAlike) {
  const auto source = read_source(R"(
    struct Args { uint a; };
    void f(threadgroup float* tile, uint i) {
      threadgroup float* row = tile + i;
      float sums[4]; sums[i] = 1.0f; g(sums[i], x[i]); return;
    })");
  EXPECT_TRUE(source) << source.error().message;
}

}  // namespace
}  // namespace kipp::metal_emulation
