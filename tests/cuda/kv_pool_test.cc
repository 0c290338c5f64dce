// The pool on the device holds FP16 of what a KvBlock has in bf16: both ways, and from block to block.
#include "backend/cuda/kv_pool.h"

#include <array>
#include <cmath>

#include "base/bf16.h"
#include "cuda/device_array.h"

namespace kipp::cuda {
namespace {

class CudaKvPoolTest : public CudaTest {
 protected:
  static constexpr int32_t kLayers = 3;

  static KvPool make_pool() {
    Dimensions dimensions{};
    dimensions.num_layers = kLayers;
    Result<KvPool> pool = KvPool::create(dimensions, 4);
    EXPECT_TRUE(pool.has_value());
    return std::move(*pool);
  }
  static KvBlock block_of(const std::vector<float>& values) {
    KvBlock block;
    block.values.resize(static_cast<size_t>(kLayers * kKvBlockElements));
    for (size_t i = 0; i < block.values.size(); ++i) block.values[i] = f32_to_bf16(values[i % values.size()]);
    return block;
  }
  static std::vector<uint16_t> read(const KvPool& pool, int32_t block) {
    KvBlock found;
    EXPECT_TRUE(pool.read(block, found, nullptr).has_value());
    return found.values;
  }
};

TEST_F(CudaKvPoolTest, KeepsEveryNumberThatFp16Has) {
  KvPool pool = make_pool();
  std::vector<float> values = {0.0F, -0.0F, 1.0F, -1.5F, 0x1.FEp15F, -0x1.FEp15F, 0x1p-14F, 0x1.02p-14F, 0x1p-24F};
  for (const float value : uniform_floats(1, 4096, 40.0F)) {
    if (std::abs(value) >= 0x1p-14F) values.push_back(value);
  }
  const KvBlock block = block_of(values);
  ASSERT_TRUE(pool.write(2, block, nullptr).has_value());
  EXPECT_EQ(read(pool, 2), block.values);
  const std::array from = {2};
  const std::array to = {0};
  ASSERT_TRUE(pool.copy(from, to, nullptr).has_value());
  EXPECT_EQ(read(pool, 0), block.values);
}

TEST_F(CudaKvPoolTest, WhatIsNoNumberThereIsNoNumberHere) {
  KvPool pool = make_pool();
  ASSERT_TRUE(pool.write(1, block_of({NAN, 0x1p17F, -INFINITY, 0x1p-30F}), nullptr).has_value());
  const std::vector<uint16_t> found = read(pool, 1);
  for (size_t i = 0; i < found.size(); i += 4) {
    ASSERT_TRUE(std::isnan(bf16_to_f32(found[i])));
    ASSERT_EQ(bf16_to_f32(found[i + 1]), INFINITY);
    ASSERT_EQ(bf16_to_f32(found[i + 2]), -INFINITY);
    ASSERT_EQ(bf16_to_f32(found[i + 3]), 0.0F);
  }
}

TEST_F(CudaKvPoolTest, RefusesBlocksThatAreNotThere) {
  KvPool pool = make_pool();
  KvBlock block = block_of({1.0F});
  EXPECT_FALSE(pool.write(4, block, nullptr).has_value());
  EXPECT_FALSE(pool.read(-1, block, nullptr).has_value());
  block.values.pop_back();
  EXPECT_FALSE(pool.write(0, block, nullptr).has_value());
}

}  // namespace
}  // namespace kipp::cuda
