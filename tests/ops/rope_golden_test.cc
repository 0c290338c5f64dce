// RoPE against the reference's own tables (Transformers in FP32, tools/generate_rope_vectors.py), position 262,143
// included.
#include <fmt/format.h>

#include "gates/safetensors.h"
#include "ops/operator_fixture.h"

namespace kipp {
namespace {

constexpr int32_t kHalf = kHeadDim / 2;

class RopeGoldenTest : public OperatorTest {
 protected:
  static std::vector<float> floats(const gates::SafetensorsFile& file, const std::string& name,
                                   const gates::Shape& shape) {
    auto values = file.floats(name, shape);
    EXPECT_TRUE(values) << values.error().message;
    return values ? *std::move(values) : std::vector<float>{};
  }
};

TEST_P(RopeGoldenTest, UnitVectorsTurnToTheReferencesCosineAndSine) {
  KIPP_REQUIRE_OPERATOR(rope)
  const auto file = gates::SafetensorsFile::open(KIPP_SOURCE_DIR "/tests/vectors/rope.safetensors");
  ASSERT_TRUE(file) << file.error().message;
  const auto positions = file->integers("positions", {-1});
  ASSERT_TRUE(positions) << positions.error().message;
  ASSERT_EQ(positions->back(), 262143);
  const auto num_positions = static_cast<int32_t>(positions->size());
  for (const int32_t theta : {1000000, 5000000}) {
    const auto cosines = floats(*file, fmt::format("theta_{}.cos", theta), {num_positions, kHalf});
    const auto sines = floats(*file, fmt::format("theta_{}.sin", theta), {num_positions, kHalf});
    ASSERT_EQ(cosines.size(), positions->size() * kHalf);
    ASSERT_EQ(sines.size(), cosines.size());
    std::vector<float> x(positions->size() * kHeadDim, 0.0F);
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = i % kHeadDim < kHalf ? 1.0F : 0.0F;
    }
    ops().rope({x.data(), positions->data(), num_positions, 1, kHeadDim, static_cast<float>(theta)});
    // The reference's FP32 sine and cosine are within one unit in the last place, at most 2^-24 below 1; ours too.
    constexpr float kBound = 0x1p-23F;
    for (size_t i = 0; i < cosines.size(); ++i) {
      const size_t first = i / kHalf * kHeadDim + i % kHalf;
      ASSERT_NEAR(x[first], cosines[i], kBound) << "theta " << theta << " position " << (*positions)[i / kHalf];
      ASSERT_NEAR(x[first + kHalf], sines[i], kBound) << "theta " << theta << " position " << (*positions)[i / kHalf];
    }
  }
}

KIPP_OPERATOR_TEST_SUITE(RopeGoldenTest);

}  // namespace
}  // namespace kipp
