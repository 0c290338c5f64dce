// Embedding rows are exact copies, widened.
#include "ops/operator_fixture.h"

namespace kipp {
namespace {

class EmbeddingTest : public OperatorTest {};

TEST_P(EmbeddingTest, WidensTheNamedRowsExactly) {
  KIPP_REQUIRE_OPERATOR(embedding)
  Draw draw(1);
  constexpr int32_t kVocab = 71;
  std::vector<int32_t> sizes = {192, 1024, 2560, 4096, 5120};
  for (int32_t size = 1; size <= 33; ++size) {
    sizes.push_back(size);
  }
  for (const int32_t hidden : sizes) {
    const auto table = with_poisoned_tail(draw.bf16(static_cast<size_t>(kVocab * hidden)));
    const std::vector<int32_t> ids = {0, kVocab - 1, draw.integer(0, kVocab - 1), kVocab - 1, 1};
    std::vector<float> out(ids.size() * static_cast<size_t>(hidden) + 1, poison());
    ops().embedding({table.data(), ids.data(), out.data(), static_cast<int32_t>(ids.size()), hidden});
    for (size_t t = 0; t < ids.size(); ++t) {
      for (int32_t c = 0; c < hidden; ++c) {
        const auto row = static_cast<size_t>(ids[t] * hidden + c);
        ASSERT_EQ(out[t * static_cast<size_t>(hidden) + static_cast<size_t>(c)], bf16_to_f32(table[row]))
            << "hidden " << hidden << " token " << t << " column " << c;
      }
    }
    EXPECT_TRUE(is_poison(out.back())) << "hidden " << hidden;
  }
}

KIPP_OPERATOR_TEST_SUITE(EmbeddingTest);

}  // namespace
}  // namespace kipp
