// Products of both row classes against double precision, and the rule that a row's bits depend on nothing else.
#include "backend/cuda/kernels/matmul.h"

#include "cuda/packed_matrix.h"

namespace kipp::cuda {
namespace {

constexpr WeightType kTypes[] = {WeightType::kBf16, WeightType::kQ8_0, WeightType::kAffine4Gs32};
constexpr int32_t kSms = 132;

class CudaMatmulTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (!IsSkipped()) {
      cudaDeviceGetAttribute(&major_, cudaDevAttrComputeCapabilityMajor, 0);
    }
  }

  // [num_rows][rows], sums of slices added up as the readers do.
  static std::vector<float> generated(const PackedMatrix& packed, const SplitActivations& x, int32_t num_rows) {
    const int32_t width = packed.matrix.rows;
    const GeneratedPlan plan = plan_generated_matmul(packed.matrix, num_rows, kSms);
    const int64_t partial_stride = int64_t{num_rows} * width;
    const DeviceArray<float> out(std::vector<float>(static_cast<size_t>(partial_stride * plan.num_partials), poison()));
    const MatmulArgs args{.matrix = packed.matrix,
                          .x = x.view(),
                          .to = {.out = out.get(), .partial_stride = partial_stride, .stride = width, .width = width},
                          .out_scale = packed.matrix.type == WeightType::kBf16 ? 1.0F / packed.matrix.fp16_scale : 1.0F,
                          .num_rows = num_rows,
                          .swiglu = false};
    EXPECT_EQ(generated_matmul(args, plan, {}), cudaSuccess);
    std::vector<float> sums = out.read();
    for (int64_t i = 0; i < partial_stride; ++i) {
      for (int32_t p = 1; p < plan.num_partials; ++p) {
        sums[static_cast<size_t>(i)] += sums[static_cast<size_t>(p * partial_stride + i)];
      }
    }
    sums.resize(static_cast<size_t>(partial_stride));
    return sums;
  }

  std::vector<float> prompt(const PackedMatrix& packed, const SplitActivations& x, int32_t num_rows, int32_t num_sms,
                            bool portable) {
    const int32_t width = packed.matrix.rows;
    DeviceMatrix matrix = packed.matrix;
    const DeviceArray<std::byte> dequantized(
        std::vector<std::byte>(static_cast<size_t>(num_tiles(matrix.rows, matrix.columns) * kFp16TileBytes)));
    if (matrix.type != WeightType::kBf16) {
      EXPECT_EQ(dequantize({matrix, dequantized.get(), matrix.fp16_scale}, {}), cudaSuccess);
      matrix.type = WeightType::kBf16;
      matrix.tiles = dequantized.get();
    }
    const DeviceArray<float> out(std::vector<float>(static_cast<size_t>(int64_t{num_rows} * width), poison()));
    const MatmulArgs args{.matrix = matrix,
                          .x = x.view(),
                          .to = {.out = out.get(), .stride = width, .width = width},
                          .out_scale = 1.0F / matrix.fp16_scale,
                          .num_rows = num_rows,
                          .swiglu = false};
    if (portable) {
      EXPECT_EQ(prompt_matmul_portable(args, {}), cudaSuccess);
    } else {
      CUtensorMap map;
      EXPECT_EQ(make_activation_map(map, x.view().high, static_cast<int32_t>(padded(num_rows, 64)), x.stride),
                CUDA_SUCCESS);
      EXPECT_EQ(prompt_matmul_wgmma(args, map, num_sms, {}), cudaSuccess);
    }
    return out.read();
  }

  // Every element within `bound` of the sum of its products' magnitudes.
  static void check(const PackedMatrix& packed, const std::vector<float>& x, const std::vector<float>& found,
                    int32_t num_rows, double bound) {
    const StoredMatrix& stored = packed.stored;
    for (int32_t t = 0; t < num_rows; ++t) {
      for (int32_t r = 0; r < stored.rows; ++r) {
        double sum = 0.0;
        double magnitude = 0.0;
        for (int32_t c = 0; c < stored.columns; ++c) {
          const auto w = static_cast<size_t>(int64_t{r} * stored.columns + c);
          const auto value = static_cast<double>(x[static_cast<size_t>(int64_t{t} * stored.columns + c)]);
          sum += stored.weights[w] * value;
          magnitude += stored.magnitudes[w] * std::abs(value);
        }
        const auto result = static_cast<double>(found[static_cast<size_t>(int64_t{t} * stored.rows + r)]);
        ASSERT_LE(std::abs(result - sum), bound * magnitude)
            << "type " << static_cast<int>(stored.type) << ", " << num_rows << " rows, " << stored.rows << " × "
            << stored.columns << ": row " << t << ", weight row " << r << ": " << result << " for " << sum;
      }
    }
  }

  int major_ = 0;
};

// Two FP16 terms leave 2^-22 of an activation, and the sums' roundings are far below the rest of this bound.
constexpr double kGeneratedBound = 0x1p-17;
// Activation and weight rounded to FP16 once each.
constexpr double kPromptBound = 0x1p-10;

TEST_F(CudaMatmulTest, GeneratedRowsMatchDoublePrecision) {
  Draw draw(1);
  for (const WeightType type : kTypes) {
    for (const auto& [rows, columns] : {std::pair{5, 32}, {48, 192}, {130, 512}, {40, 2560}, {19, 9728}}) {
      const PackedMatrix packed(draw, type, rows, columns);
      for (const int32_t num_rows : {1, 2, 3, 8, 9, 17, 33, 64, 70}) {
        const std::vector<float> x = draw.floats(static_cast<size_t>(num_rows * columns), 2.0F);
        const SplitActivations split(x, num_rows, columns);
        check(packed, x, generated(packed, split, num_rows), num_rows, kGeneratedBound);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(CudaMatmulTest, AGeneratedRowDoesNotDependOnItsMates) {
  Draw draw(2);
  for (const WeightType type : kTypes) {
    for (const auto& [rows, columns] : {std::pair{300, 512}, {4200, 1024}, {128, 9728}}) {
      const PackedMatrix packed(draw, type, rows, columns);
      constexpr int32_t kMost = 130;
      const std::vector<float> x = draw.floats(static_cast<size_t>(kMost * columns), 2.0F);
      const std::vector<float> all = generated(packed, SplitActivations(x, kMost, columns), kMost);
      for (const int32_t num_rows : {1, 2, 3, 5, 8, 12, 16, 20, 32, 33, 64, 65}) {
        const std::vector<float> some = generated(packed, SplitActivations(x, num_rows, columns), num_rows);
        for (size_t i = 0; i < some.size(); ++i) {
          ASSERT_EQ(some[i], all[i]) << "type " << static_cast<int>(type) << ", " << num_rows << " rows, element " << i;
        }
      }
    }
  }
}

TEST_F(CudaMatmulTest, PromptRowsMatchDoublePrecision) {
  Draw draw(3);
  for (const WeightType type : kTypes) {
    for (const auto& [rows, columns] : {std::pair{5, 32}, {130, 192}, {256, 2560}}) {
      // Scales of drawn quantised matrices span all of FP16's range: only long rows surely hold a large one.
      if (type != WeightType::kBf16 && columns < 2560) continue;
      const PackedMatrix packed(draw, type, rows, columns);
      for (const int32_t num_rows : {1, 63, 130}) {
        const std::vector<float> x = draw.floats(static_cast<size_t>(num_rows * columns), 2.0F);
        const SplitActivations split(x, num_rows, columns);
        check(packed, x, prompt(packed, split, num_rows, kSms, true), num_rows, kPromptBound);
        if (major_ == 9) check(packed, x, prompt(packed, split, num_rows, kSms, false), num_rows, kPromptBound);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Different numbers of multiprocessors lead to different widths of a tile of tokens: none may change a bit.
TEST_F(CudaMatmulTest, APromptRowDoesNotDependOnItsMatesNorOnTheTiles) {
  if (major_ != 9) GTEST_SKIP() << "wgmma needs compute capability 9.0";
  Draw draw(4);
  for (const auto& [rows, columns] : {std::pair{300, 512}, {1000, 2560}}) {
    const PackedMatrix packed(draw, WeightType::kBf16, rows, columns);
    constexpr int32_t kMost = 800;
    const std::vector<float> x = draw.floats(static_cast<size_t>(kMost * columns), 2.0F);
    const std::vector<float> all = prompt(packed, SplitActivations(x, kMost, columns), kMost, kSms, false);
    for (const int32_t num_rows : {1, 7, 64, 65, 128, 160, 192, 255, 256, 400, 640, 799}) {
      for (const int32_t num_sms : {1, 5, 11, 40, kSms}) {
        const std::vector<float> some =
            prompt(packed, SplitActivations(x, num_rows, columns), num_rows, num_sms, false);
        for (size_t i = 0; i < some.size(); ++i) {
          ASSERT_EQ(some[i], all[i]) << num_rows << " rows, " << num_sms << " multiprocessors, element " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace kipp::cuda
