// A key's requests are counted while they last, and no longer.
#include "server/api/key_slots.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>

namespace kipp::api {
namespace {

TEST(KeySlots, EachKeyHasItsOwnLimit) {
  KeySlots keys({{"a", 2}, {"b", 1}, {"free", 0}});
  KeySlots::Slot first;
  std::optional<KeySlots::Slot> second(std::in_place);
  KeySlots::Slot other;
  EXPECT_TRUE(keys.take(0, first));
  EXPECT_TRUE(keys.take(0, *second));
  EXPECT_FALSE(keys.take(0, other));
  EXPECT_TRUE(keys.take(1, other)) << "another key's";
  second.reset();
  KeySlots::Slot third;
  EXPECT_TRUE(keys.take(0, third));
  EXPECT_FALSE(keys.take(0, *(second = KeySlots::Slot())));
  first.release();
  first.release();
  EXPECT_TRUE(keys.take(0, *second)) << "one was given back, once";
  KeySlots::Slot fourth;
  EXPECT_FALSE(keys.take(0, fourth));
}

TEST(KeySlots, WithoutALimitOrAKeyAllMay) {
  KeySlots keys({{"free", 0}});
  std::vector<KeySlots::Slot> slots(100);
  for (size_t i = 0; i < slots.size(); ++i) EXPECT_TRUE(keys.take(i % 2 == 0 ? 0 : -1, slots[i]));
  EXPECT_EQ(keys.name(0), "free");
  EXPECT_EQ(keys.name(-1), "");
  EXPECT_EQ(keys.limit(0), 0);
}

TEST(KeySlots, ThreadsNeverHoldMoreThanTheLimit) {
  constexpr int32_t kLimit = 3;
  KeySlots keys({{"a", kLimit}});
  std::atomic<int32_t> held = 0;
  std::atomic<int32_t> most = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5000; ++i) {
        KeySlots::Slot slot;
        if (!keys.take(0, slot)) continue;
        const int32_t now = ++held;
        for (int32_t known = most; known < now && !most.compare_exchange_weak(known, now);) {
        }
        --held;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(most, kLimit);
  KeySlots::Slot slot;
  EXPECT_TRUE(keys.take(0, slot)) << "all were given back";
}

}  // namespace
}  // namespace kipp::api
