// The expected tensors, against numbers worked out by hand.
#include "gguf/tensor_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace kipp::gguf {
namespace {

constexpr QuantScheme kAllSchemes[] = {QuantScheme::kBf16, QuantScheme::kQ8_0, QuantScheme::kAffine4Gs32};

uint64_t total_bytes(const std::vector<ExpectedTensor>& tensors) {
  return std::accumulate(tensors.begin(), tensors.end(), uint64_t{0},
                         [](uint64_t sum, const ExpectedTensor& t) { return sum + t.view.bytes; });
}

TEST(TensorLayout, SmallestCheckpoint) {
  const auto tensors = expected_tensors(dimensions_of(*find_checkpoint("qwen3-0.6b")), QuantScheme::kBf16);
  ASSERT_EQ(tensors.size(), 1U + 28 * 11 + 1);  // tied: no output.weight
  const struct {
    size_t index;
    const char* name;
    int32_t rows, columns;
    std::vector<uint64_t> dims;
  } expected[] = {{0, "token_embd.weight", 151936, 1024, {1024, 151936}},
                  {1, "blk.0.attn_norm.weight", 1, 1024, {1024}},
                  {2, "blk.0.attn_q.weight", 2048, 1024, {1024, 2048}},
                  {3, "blk.0.attn_k.weight", 1024, 1024, {1024, 1024}},
                  {4, "blk.0.attn_v.weight", 1024, 1024, {1024, 1024}},
                  {5, "blk.0.attn_q_norm.weight", 1, 128, {128}},
                  {6, "blk.0.attn_k_norm.weight", 1, 128, {128}},
                  {7, "blk.0.attn_output.weight", 1024, 2048, {2048, 1024}},
                  {8, "blk.0.ffn_norm.weight", 1, 1024, {1024}},
                  {9, "blk.0.ffn_gate.weight", 3072, 1024, {1024, 3072}},
                  {10, "blk.0.ffn_up.weight", 3072, 1024, {1024, 3072}},
                  {11, "blk.0.ffn_down.weight", 1024, 3072, {3072, 1024}},
                  {12, "blk.1.attn_norm.weight", 1, 1024, {1024}},
                  {308, "blk.27.ffn_down.weight", 1024, 3072, {3072, 1024}},
                  {309, "output_norm.weight", 1, 1024, {1024}}};
  for (const auto& test : expected) {
    const ExpectedTensor& tensor = tensors[test.index];
    EXPECT_EQ(tensor.name, test.name);
    EXPECT_EQ(tensor.view.rows, test.rows) << test.name;
    EXPECT_EQ(tensor.view.columns, test.columns) << test.name;
    EXPECT_EQ(tensor.file_dims(), test.dims) << test.name;
    EXPECT_EQ(tensor.view.bytes, uint64_t{2} * static_cast<uint64_t>(test.rows) * static_cast<uint64_t>(test.columns));
  }
}

// The published sizes of the real artifacts: 8B 15.26 GiB in BF16, 4B 4.32 GiB in Q8_0, 32B 61.0 GiB.
TEST(TensorLayout, SizesOfLargerCheckpoints) {
  constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
  const auto gib = [](const char* id, QuantScheme scheme) {
    return static_cast<double>(total_bytes(expected_tensors(dimensions_of(*find_checkpoint(id)), scheme))) / kGiB;
  };
  EXPECT_NEAR(gib("qwen3-8b", QuantScheme::kBf16), 15.26, 0.01);
  EXPECT_NEAR(gib("qwen3-4b", QuantScheme::kQ8_0), 4.32, 0.01);
  EXPECT_NEAR(gib("qwen3-32b", QuantScheme::kBf16), 61.0, 0.1);
  EXPECT_EQ(expected_tensors(dimensions_of(*find_checkpoint("qwen3-32b")), QuantScheme::kBf16).size(), 707U);
}

TEST(TensorLayout, OnlyProjectionsAreQuantised) {
  for (const QuantScheme scheme : {QuantScheme::kQ8_0, QuantScheme::kAffine4Gs32}) {
    const auto tensors = expected_tensors(dimensions_of(*find_checkpoint("qwen3-8b")), scheme);
    size_t num_quantised = 0;
    for (const ExpectedTensor& tensor : tensors) {
      const bool projection = tensor.name.starts_with("blk.") && !tensor.is_norm;
      EXPECT_EQ(tensor.view.type != WeightType::kBf16, projection) << tensor.name;
      num_quantised += projection ? 1U : 0U;
    }
    EXPECT_EQ(num_quantised, 36U * 7);
    EXPECT_EQ(tensors.back().name, "output.weight");
  }
}

TEST(TensorLayout, BytesOfTheThreeTypes) {
  EXPECT_EQ(weight_bytes(WeightType::kBf16, 3, 64), 3U * 64 * 2);
  EXPECT_EQ(weight_bytes(WeightType::kQ8_0, 3, 64), 3U * 2 * 34);
  EXPECT_EQ(weight_bytes(WeightType::kAffine4Gs32, 3, 64), 3U * 2 * 20);
  // The largest matrix of the family, in bytes beyond 32 bits.
  EXPECT_EQ(weight_bytes(WeightType::kBf16, 151936, 25600), 7779123200U);
}

// The binder allows no padding between tensors, since none is ever needed; and no scale spans two rows.
TEST(TensorLayout, EveryTensorOfEveryEntryIsAMultipleOfTheAlignment) {
  for (const Checkpoint& entry : kCheckpoints) {
    for (const QuantScheme scheme : kAllSchemes) {
      for (const ExpectedTensor& tensor : expected_tensors(dimensions_of(entry), scheme)) {
        EXPECT_EQ(tensor.view.bytes % kArtifactAlignment, 0U) << entry.id << " " << tensor.name;
        EXPECT_EQ(tensor.view.columns % 32, 0) << entry.id << " " << tensor.name;
      }
    }
  }
}

TEST(TensorLayout, AssembleKeepsEveryViewInItsPlace) {
  for (const char* id : {"qwen3-0.6b", "qwen3-8b"}) {
    const Dimensions dimensions = dimensions_of(*find_checkpoint(id), 2);
    std::vector<WeightView> views;
    for (const ExpectedTensor& tensor : expected_tensors(dimensions, QuantScheme::kBf16)) {
      views.push_back(tensor.view);
      views.back().offset = views.size();  // 1, 2, …
    }
    const ModelWeights weights = assemble_weights(dimensions, views);
    ASSERT_EQ(weights.layers.size(), 2U);
    EXPECT_EQ(weights.token_embedding.offset, 1U);
    const LayerWeights& second = weights.layers[1];
    EXPECT_EQ(second.attention_norm.offset, 13U);
    EXPECT_EQ(second.query_projection.offset, 14U);
    EXPECT_EQ(second.key_projection.offset, 15U);
    EXPECT_EQ(second.value_projection.offset, 16U);
    EXPECT_EQ(second.query_norm.offset, 17U);
    EXPECT_EQ(second.key_norm.offset, 18U);
    EXPECT_EQ(second.output_projection.offset, 19U);
    EXPECT_EQ(second.ffn_norm.offset, 20U);
    EXPECT_EQ(second.gate_projection.offset, 21U);
    EXPECT_EQ(second.up_projection.offset, 22U);
    EXPECT_EQ(second.down_projection.offset, 23U);
    EXPECT_EQ(weights.output_norm.offset, 24U);
    EXPECT_EQ(weights.output_head.offset, dimensions.tied_head ? 1U : 25U);
  }
}

}  // namespace
}  // namespace kipp::gguf
