// Philox4x32-10 against the known answers of the Random123 distribution (Salmon et al. 2011), and what keys a draw.
#include "sampling/philox.h"

#include <gtest/gtest.h>

#include <array>
#include <set>

namespace kipp {
namespace {

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  const PhiloxCounter out =
      philox4x32_10(PhiloxCounter{{counter[0], counter[1], counter[2], counter[3]}}, PhiloxKey{{key[0], key[1]}});
  return {out.word[0], out.word[1], out.word[2], out.word[3]};
}

TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (std::array{0x6627E8D5U, 0xE169C58DU, 0xBC57AC4CU, 0x9B00DBD8U}));
  constexpr uint32_t kOnes = 0xFFFFFFFFU;
  EXPECT_EQ(philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (std::array{0x408F276DU, 0x41C83B0EU, 0xA20BC7C6U, 0x6D5451FDU}));
  EXPECT_EQ(philox({0x243F6A88U, 0x85A308D3U, 0x13198A2EU, 0x03707344U}, {0xA4093822U, 0x299F31D0U}),
            (std::array{0xD16CFE09U, 0x94FDCCEBU, 0x5001E420U, 0x24126EA1U}));
}

TEST(TokenDraw, UsesTheFirstTwoWordsLowFirst) {
  EXPECT_EQ(token_draw(0, 0, 0), 0xE169C58D6627E8D5U);
}

TEST(TokenDraw, DependsOnEveryBitOfItsKey) {
  std::set<uint64_t> draws = {token_draw(0, 0, 0)};
  size_t expected = 1;
  for (int32_t bit = 0; bit < 64; ++bit) {
    draws.insert(token_draw(1ULL << bit, 0, 0));
    ++expected;
  }
  for (int32_t bit = 0; bit < 31; ++bit) {
    draws.insert(token_draw(0, 1 << bit, 0));
    draws.insert(token_draw(0, 0, 1 << bit));
    expected += 2;
  }
  EXPECT_EQ(draws.size(), expected);
}

}  // namespace
}  // namespace kipp
