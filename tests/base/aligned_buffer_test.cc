// Alignment, sizes that do not fit, and moves.
#include "base/aligned_buffer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace kipp {
namespace {

TEST(AlignedBufferTest, IsAlignedAtEverySize) {
  for (size_t size = 0; size <= 33; ++size) {
    auto buffer = AlignedBuffer<float>::create(size, "test");
    ASSERT_TRUE(buffer);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % AlignedBuffer<float>::kAlignment, 0U);
    EXPECT_EQ(buffer->span().size(), size);
    for (float& value : buffer->span()) {
      value = 1.0F;
    }
  }
}

TEST(AlignedBufferTest, LargeOnesAreWritableToTheEnd) {
  for (const size_t size : {kHugePagesFrom - 1, kHugePagesFrom, kHugePagesFrom + 1}) {
    auto buffer = AlignedBuffer<std::byte>::create(size, "test");
    ASSERT_TRUE(buffer);
    EXPECT_EQ(buffer->size(), size);
    buffer->span().front() = std::byte{1};
    buffer->span().back() = std::byte{2};
    const auto moved = *std::move(buffer);
    EXPECT_EQ(moved.data()[size - 1], std::byte{2});
  }
}

TEST(AlignedBufferTest, WhatDoesNotFitIsAnErrorWithItsName) {
  for (const size_t size : {size_t{1} << 60U, ~size_t{0}}) {
    const auto buffer = AlignedBuffer<double>::create(size, "the pool");
    ASSERT_FALSE(buffer);
    EXPECT_EQ(buffer.error().code, ErrorCode::kCapacity);
    EXPECT_THAT(buffer.error().message, testing::HasSubstr("the pool"));
  }
}

}  // namespace
}  // namespace kipp
