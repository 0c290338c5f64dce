// Dimensions of the registry's entries, and the bytes of a weight row.
#include "model/dimensions.h"

#include <gtest/gtest.h>

#include "model/weights.h"

namespace kipp {
namespace {

TEST(DimensionsTest, TheAttentionWidthIsNotTheHiddenWidth) {
  const auto widths = [](std::string_view id) {
    const Dimensions dimensions = dimensions_of(*find_checkpoint(id));
    return std::pair(dimensions.hidden, dimensions.query_width());
  };
  EXPECT_EQ(widths("qwen3-0.6b"), std::pair(1024, 2048));
  EXPECT_EQ(widths("qwen3-4b"), std::pair(2560, 4096));
  EXPECT_EQ(widths("qwen3-32b"), std::pair(5120, 8192));
}

TEST(DimensionsTest, EveryEntryFitsTheOperators) {
  for (const Checkpoint& checkpoint : kCheckpoints) {
    const Dimensions dimensions = dimensions_of(checkpoint);
    EXPECT_EQ(dimensions.num_layers, checkpoint.num_layers) << checkpoint.id;
    EXPECT_EQ(dimensions.kv_width(), 1024) << checkpoint.id;
    EXPECT_EQ(dimensions.num_query_heads % dimensions.num_kv_heads, 0) << checkpoint.id;
    EXPECT_EQ(dimensions.hidden % 32, 0) << checkpoint.id;  // quantisation groups
    EXPECT_EQ(dimensions.ffn % 32, 0) << checkpoint.id;
  }
}

TEST(DimensionsTest, ATwinMayCutTheDepth) {
  EXPECT_EQ(dimensions_of(*find_checkpoint("qwen3-8b"), 2).num_layers, 2);
  EXPECT_EQ(dimensions_of(*find_checkpoint("qwen3-8b"), 2).ffn, 12288);
}

TEST(WeightRowTest, BytesOfEveryType) {
  EXPECT_EQ(weight_row_bytes(WeightType::kBf16, 1024), 2048);
  EXPECT_EQ(weight_row_bytes(WeightType::kQ8_0, 1024), 1088);        // 8.5 bits a weight
  EXPECT_EQ(weight_row_bytes(WeightType::kAffine4Gs32, 1024), 640);  // 5 bits a weight
}

}  // namespace
}  // namespace kipp
