// Which bucket a value falls into, and that nothing is lost when many threads count.
#include "server/metrics/histogram.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <thread>

namespace kipp::metrics {
namespace {

using ::testing::ElementsAre;

constexpr std::array kBounds = {1.0, 2.5, 10.0};

TEST(Histogram, BoundsBelongToTheirBucket) {
  Histogram histogram(kBounds);
  for (const double value : {-1.0, 0.0, 1.0, 1.0000001, 2.5, 3.0, 10.0, 10.5, 1e300}) histogram.observe(value);
  EXPECT_THAT(histogram.snapshot().counts, ElementsAre(3, 2, 2, 2));
}

TEST(Histogram, AddsUp) {
  Histogram histogram(kBounds);
  EXPECT_THAT(histogram.snapshot().counts, ElementsAre(0, 0, 0, 0));
  histogram.observe(0.5);
  histogram.observe(4.0, 3);
  histogram.observe(4.0, 0);
  EXPECT_THAT(histogram.snapshot().counts, ElementsAre(1, 0, 3, 0));
  EXPECT_EQ(histogram.snapshot().sum, 12.5);
  histogram.observe(std::numeric_limits<double>::infinity());
  EXPECT_EQ(histogram.snapshot().counts.back(), 1U);
}

TEST(Histogram, ThreadsLoseNothing) {
  constexpr int kThreads = 4;
  constexpr uint64_t kEach = 20'000;
  Histogram histogram(kBounds);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&histogram] {
      for (uint64_t n = 0; n < kEach; ++n) histogram.observe(n % 2 == 0 ? 1.0 : 5.0);
    });
  }
  uint64_t seen = 0;
  for (int i = 0; i < 100; ++i) {  // while they count
    uint64_t total = 0;
    for (const uint64_t count : histogram.snapshot().counts) total += count;
    EXPECT_GE(total, seen);
    seen = total;
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(histogram.snapshot().counts, ElementsAre(kThreads * kEach / 2, 0, kThreads * kEach / 2, 0));
  EXPECT_EQ(histogram.snapshot().sum, kThreads * static_cast<double>(kEach) * 3.0);
}

}  // namespace
}  // namespace kipp::metrics
