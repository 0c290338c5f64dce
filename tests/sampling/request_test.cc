// Whether bans and mask leave a token, as every sampler asks before it draws.
#include "sampling/request.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>

namespace kipp {
namespace {

constexpr float kBan = -std::numeric_limits<float>::infinity();

bool leaves(const SamplingParams& params, const uint32_t* mask, int32_t num_tokens) {
  return leaves_a_token({.params = &params, .mask = mask}, num_tokens);
}

TEST(Request, BansLeaveATokenUnlessTheyNameAll) {
  EXPECT_TRUE(leaves({}, nullptr, 1));
  EXPECT_FALSE(leaves({.logit_bias = {{0, kBan}}}, nullptr, 1));
  EXPECT_TRUE(leaves({.logit_bias = {{0, kBan}}}, nullptr, 2));
  EXPECT_FALSE(leaves({.logit_bias = {{1, kBan}, {0, kBan}}}, nullptr, 2));
  EXPECT_TRUE(leaves({.logit_bias = {{1, -100.0F}, {0, kBan}}}, nullptr, 2));
}

TEST(Request, ABanOutsideTheMaskTakesNothingAway) {
  const std::array<uint32_t, 2> mask = {0x80000000U, 0b100U};  // ids 31 and 34
  EXPECT_TRUE(leaves({.logit_bias = {{31, kBan}, {5, kBan}}}, mask.data(), 40));
  EXPECT_FALSE(leaves({.logit_bias = {{31, kBan}, {34, kBan}}}, mask.data(), 40));
  EXPECT_FALSE(leaves({.logit_bias = {{31, kBan}}}, mask.data(), 34));  // id 34 has no token
  EXPECT_FALSE(leaves({}, mask.data(), 31));
}

}  // namespace
}  // namespace kipp
