// K and V land, rounded, at the places that the block table names, and nowhere else.
#include "ops/operator_fixture.h"

namespace kipp {
namespace {

class KvWriteTest : public OperatorTest {
 protected:
  void check(Draw& draw, int32_t first_position, int32_t num_tokens, int32_t num_kv_heads, int32_t head_dim,
             KvType type) {
    const auto per_token = static_cast<size_t>(num_kv_heads * head_dim);
    const auto k = with_poisoned_tail(draw.floats(per_token * static_cast<size_t>(num_tokens), 100.0F));
    const auto v = with_poisoned_tail(draw.floats(per_token * static_cast<size_t>(num_tokens), 100.0F));
    PagedPool pool(draw, first_position + num_tokens, num_kv_heads, head_dim, type);
    ops().kv_write({k.data(), v.data(), pool.view(), pool.block_table().data(), first_position, num_tokens,
                    num_kv_heads, head_dim});
    for (int32_t part = 0; part < 2; ++part) {
      const std::vector<float>& values = part == 0 ? k : v;
      for (size_t i = 0; i < per_token * static_cast<size_t>(num_tokens); ++i) {
        const auto t = static_cast<int32_t>(i / per_token);
        const auto head = static_cast<int32_t>(i % per_token) / head_dim;
        const auto d = static_cast<int32_t>(i % per_token) % head_dim;
        const float expected = type == KvType::kBf16 ? round_to_bf16(values[i]) : values[i];
        ASSERT_EQ(pool.get(part, first_position + t, head, d), expected)
            << "part " << part << " token " << t << " head " << head << " element " << d;
      }
    }
    EXPECT_EQ(pool.num_poisoned(), pool.num_elements() - 2 * per_token * static_cast<size_t>(num_tokens))
        << "wrote elsewhere: " << num_tokens << " tokens from position " << first_position;
  }
};

TEST_P(KvWriteTest, WritesEveryPositionOfRaggedSpans) {
  KIPP_REQUIRE_OPERATOR(kv_write)
  Draw draw(12);
  for (const int32_t first_position : {0, 1, 31, 32, 33, 70}) {
    for (const int32_t num_tokens : {1, 2, 31, 32, 33, 65}) {
      check(draw, first_position, num_tokens, 8, 128, KvType::kBf16);
    }
  }
  for (int32_t size = 1; size <= 33; ++size) {
    check(draw, size, size, 1 + size % 3, size, KvType::kBf16);
  }
}

TEST_P(KvWriteTest, KeepsFp32WhereThePoolDoes) {
  KIPP_REQUIRE_OPERATOR(kv_write)
  Draw draw(13);
  check(draw, 17, 80, 8, 128, KvType::kF32);
}

TEST_P(KvWriteTest, RoundsToNearestEven) {
  KIPP_REQUIRE_OPERATOR(kv_write)
  const auto bits = [](uint32_t value) { return std::bit_cast<float>(value); };
  const std::vector<float> k = {bits(0x3F808000), bits(0x3F818000), bits(0x3F808001),
                                bits(0x3F807FFF), bits(0x7F7FFFFF), -0.0F,
                                bits(0x00000001), -bits(0x3F818000)};
  const std::vector<uint16_t> expected = {0x3F80, 0x3F82, 0x3F81, 0x3F80, 0x7F80, 0x8000, 0x0000, 0xBF82};
  Draw draw(14);
  PagedPool pool(draw, 1, 1, 8, KvType::kBf16);
  ops().kv_write({k.data(), k.data(), pool.view(), pool.block_table().data(), 0, 1, 1, 8});
  for (size_t i = 0; i < k.size(); ++i) {
    EXPECT_EQ(f32_to_bf16(pool.get(0, 0, 0, static_cast<int32_t>(i))), expected[i]) << i;
  }
}

KIPP_OPERATOR_TEST_SUITE(KvWriteTest);

}  // namespace
}  // namespace kipp
