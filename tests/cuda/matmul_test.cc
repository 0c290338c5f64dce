// Products of both row classes against double precision, and the rule that a row's bits depend on nothing else.
#include "backend/cuda/kernels/matmul.h"

#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "backend/cuda/kernels/generated_matmul_cluster.h"
#include "backend/cuda/kernels/generated_matmul_variants.h"
#include "backend/cuda/kernels/swiglu.h"
#include "backend/cuda/scales.h"
#include "cuda/packed_matrix.h"

namespace kipp::cuda {
namespace {

constexpr WeightType kTypes[] = {WeightType::kBf16, WeightType::kQ8_0, WeightType::kAffine4Gs32};
constexpr int32_t kSms = 132;

// Two FP16 terms leave 2^-22 of an activation, and the sums' roundings are far below the rest of this bound.
constexpr double kGeneratedBound = 0x1p-17;
// Activation and weight rounded to FP16 once each.
constexpr double kPromptBound = 0x1p-10;

class CudaMatmulTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (!IsSkipped()) {
      cudaDeviceGetAttribute(&major_, cudaDevAttrComputeCapabilityMajor, 0);
      cudaDeviceGetAttribute(&minor_, cudaDevAttrComputeCapabilityMinor, 0);
    }
  }

  // [num_rows][rows], sums of slices added up as the readers do. What lies between and behind the rows must stay as it
  // is.
  static std::vector<float> generated(const PackedMatrix& packed, const SplitActivations& x, int32_t num_rows) {
    return generated(packed, x, num_rows, plan_generated_matmul(packed.matrix, num_rows, kSms));
  }
  static std::vector<float> generated(const PackedMatrix& packed, const SplitActivations& x, int32_t num_rows,
                                      const GeneratedPlan& plan) {
    const int32_t width = packed.matrix.rows;
    const int32_t stride = width + 3;
    const int64_t partial_stride = int64_t{num_rows + 2} * stride;
    const DeviceArray<float> out(std::vector<float>(static_cast<size_t>(partial_stride * plan.num_partials), poison()));
    MatmulArgs args = generated_args(packed.matrix, x, num_rows);
    args.to = {.out = out.get(), .partial_stride = partial_stride, .stride = stride, .width = width};
    EXPECT_EQ(generated_matmul(args, plan, {}), cudaSuccess);
    const std::vector<float> found = out.read();
    std::vector<float> sums(static_cast<size_t>(num_rows * width));
    for (int64_t i = 0; i < std::ssize(found); ++i) {
      const int64_t row = i % partial_stride / stride;
      const int64_t column = i % stride;
      const float value = found[static_cast<size_t>(i)];
      if (row >= num_rows || column >= width) {
        EXPECT_TRUE(is_poison(value)) << "row " << row << ", column " << column;
      } else if (i < partial_stride) {
        sums[static_cast<size_t>(row * width + column)] = value;
      } else {
        sums[static_cast<size_t>(row * width + column)] += value;
      }
    }
    return sums;
  }

  static MatmulArgs generated_args(const DeviceMatrix& matrix, const SplitActivations& x, int32_t num_rows) {
    return {.matrix = matrix,
            .x = x.view(),
            .to = {},
            .out_scale = matrix.type == WeightType::kBf16 ? 1.0F / matrix.fp16_scale : 1.0F,
            .num_rows = num_rows,
            .swiglu = false};
  }

  // high + low of the gated activation, [num_rows][rows / 2]: by the product itself or from the sums that it leaves.
  static std::vector<float> gated(const PackedMatrix& packed, const SplitActivations& x, int32_t num_rows) {
    return gated(packed, x, num_rows, plan_generated_matmul(packed.matrix, num_rows, kSms));
  }
  static std::vector<float> gated(const PackedMatrix& packed, const SplitActivations& x, int32_t num_rows,
                                  const GeneratedPlan& plan) {
    constexpr uint16_t kPoison = 0x7EAD;
    const int32_t width = packed.matrix.rows / 2;
    const int32_t stride = width + 8;
    const auto count = static_cast<size_t>((num_rows + 1) * stride);
    const DeviceArray<uint16_t> high(std::vector<uint16_t>(count, kPoison));
    const DeviceArray<uint16_t> low(std::vector<uint16_t>(count, kPoison));
    auto* first = reinterpret_cast<__half*>(high.get());
    auto* second = reinterpret_cast<__half*>(low.get());
    MatmulArgs args = generated_args(packed.matrix, x, num_rows);
    const int64_t partial_stride = int64_t{num_rows} * 2 * width;
    const DeviceArray<float> partials(static_cast<size_t>(partial_stride * plan.num_partials));
    if (plan.num_partials == 1) {
      args.swiglu = true;
      args.to = {.high = first, .low = second, .stride = stride, .width = width};
      EXPECT_EQ(generated_matmul(args, plan, {}), cudaSuccess);
    } else {
      args.to = {.out = partials.get(), .partial_stride = partial_stride, .stride = 2 * width, .width = 2 * width};
      EXPECT_EQ(generated_matmul(args, plan, {}), cudaSuccess);
      EXPECT_EQ(
          swiglu({partials.get(), partial_stride, plan.num_partials, 2 * width, first, second, num_rows, width, stride},
                 {}),
          cudaSuccess);
    }
    std::vector<float> values;
    const std::vector<uint16_t> a = high.read();
    const std::vector<uint16_t> b = low.read();
    for (size_t i = 0; i < count; ++i) {
      const auto column = static_cast<int32_t>(i) % stride;
      if (column < width && static_cast<int32_t>(i) / stride < num_rows) {
        values.push_back(half_value(a[i]) + half_value(b[i]));
      } else {
        EXPECT_TRUE(a[i] == kPoison && b[i] == kPoison) << "element " << i;
      }
    }
    return values;
  }

  std::vector<float> prompt(const PackedMatrix& packed, const SplitActivations& x, int32_t num_rows, int32_t num_sms,
                            bool portable, int32_t tile_tokens = 0) {
    const int32_t width = packed.matrix.rows;
    DeviceMatrix matrix = packed.matrix;
    const DeviceArray<std::byte> dequantized(
        std::vector<std::byte>(static_cast<size_t>(num_tiles(matrix.rows, matrix.columns) * kFp16TileBytes)));
    if (matrix.type != WeightType::kBf16) {
      EXPECT_EQ(dequantize({matrix, dequantized.get(), matrix.fp16_scale}, {}), cudaSuccess);
      matrix.type = WeightType::kBf16;
      matrix.tiles = dequantized.get();
    }
    const int32_t stride = width + 4;
    const DeviceArray<float> out(std::vector<float>(static_cast<size_t>(int64_t{num_rows + 1} * stride), poison()));
    const MatmulArgs args{.matrix = matrix,
                          .x = x.view(),
                          .to = {.out = out.get(), .stride = stride, .width = width},
                          .out_scale = 1.0F / matrix.fp16_scale,
                          .num_rows = num_rows,
                          .swiglu = false};
    if (portable) {
      EXPECT_EQ(prompt_matmul_portable(args, {}), cudaSuccess);
    } else {
      const int32_t tokens = tile_tokens > 0 ? tile_tokens : plan_prompt_matmul(args, num_sms);
      EXPECT_EQ(prompt_matmul_wgmma(args, tokens, num_sms, {}), cudaSuccess);
    }
    return without_margin(out.read(), num_rows, width, stride);
  }

  // [num_rows][width] of [num_rows + 1][stride], the rest of which nothing may have written.
  static std::vector<float> without_margin(const std::vector<float>& found, int32_t num_rows, int32_t width,
                                           int32_t stride) {
    std::vector<float> rows;
    for (int64_t i = 0; i < std::ssize(found); ++i) {
      if (i / stride < num_rows && i % stride < width) {
        rows.push_back(found[static_cast<size_t>(i)]);
      } else {
        EXPECT_TRUE(is_poison(found[static_cast<size_t>(i)])) << "row " << i / stride << ", column " << i % stride;
      }
    }
    return rows;
  }

  // Of a weight row: the product with x, and the sum of its terms' magnitudes.
  static std::pair<double, double> packed_sum(const PackedMatrix& packed, int32_t row, std::span<const float> x) {
    double sum = 0.0;
    double magnitude = 0.0;
    const size_t first = static_cast<size_t>(row) * x.size();
    for (size_t c = 0; c < x.size(); ++c) {
      sum += packed.stored.weights[first + c] * static_cast<double>(x[c]);
      magnitude += packed.stored.magnitudes[first + c] * std::abs(static_cast<double>(x[c]));
    }
    return {sum, magnitude};
  }

  // Every element within `bound` of the sum of its products' magnitudes.
  static void check(const PackedMatrix& packed, const std::vector<float>& x, const std::vector<float>& found,
                    int32_t num_rows, double bound) {
    const StoredMatrix& stored = packed.stored;
    for (int32_t t = 0; t < num_rows; ++t) {
      const std::span<const float> row(x.data() + int64_t{t} * stored.columns, static_cast<size_t>(stored.columns));
      for (int32_t r = 0; r < stored.rows; ++r) {
        const auto [sum, magnitude] = packed_sum(packed, r, row);
        const auto result = static_cast<double>(found[static_cast<size_t>(int64_t{t} * stored.rows + r)]);
        ASSERT_LE(std::abs(result - sum), bound * magnitude)
            << "type " << static_cast<int>(stored.type) << ", " << num_rows << " rows, " << stored.rows << " × "
            << stored.columns << ": row " << t << ", weight row " << r << ": " << result << " for " << sum;
      }
    }
  }

  bool has_clusters() const { return major_ == 9 && minor_ == 0; }

  int major_ = 0;
  int minor_ = 0;
};

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

// For compute-sanitizer's slow tools: the least work in which every kernel of products runs.
TEST_F(CudaMatmulTest, OneSmallShapeOfEveryKernel) {
  Draw draw(10);
  constexpr int32_t kColumns = 256;
  for (const WeightType type : kTypes) {
    const PackedMatrix packed(draw, type, 48, kColumns);
    for (const int32_t num_rows : {1, 5, 9, 20, 40}) {
      const std::vector<float> x = draw.floats(static_cast<size_t>(num_rows * kColumns), 2.0F);
      const SplitActivations split(x, num_rows, kColumns);
      check(packed, x, generated(packed, split, num_rows), num_rows, kGeneratedBound);
      check(packed, x, generated(packed, split, num_rows, {.num_partials = kNumSlices, .row_tiles = 1}), num_rows,
            kGeneratedBound);
      if (type != WeightType::kBf16 || HasFatalFailure()) continue;
      check(packed, x, prompt(packed, split, num_rows, kSms, true), num_rows, kPromptBound);
      if (major_ != 9) continue;
      for (const int32_t tokens : kPromptTileTokens) {
        check(packed, x, prompt(packed, split, num_rows, kSms, false, tokens), num_rows, kPromptBound);
      }
    }
    if (HasFatalFailure()) return;
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
      for (const int32_t num_rows : {1, 2, 3, 5, 8, 9, 12, 16, 17, 20, 32, 33, 64, 65, 129}) {
        const std::vector<float> some = generated(packed, SplitActivations(x, num_rows, columns), num_rows);
        for (size_t i = 0; i < some.size(); ++i) {
          ASSERT_EQ(some[i], all[i]) << "type " << static_cast<int>(type) << ", " << num_rows << " rows, element " << i;
        }
      }
    }
  }
}

// Every shape of the cluster kernel, with more clusters than units and with so few that each has several rounds.
std::vector<GeneratedPlan> cluster_plans() {
  std::vector<GeneratedPlan> plans;
  for (const int32_t tokens : {16, 32, 64}) {
    for (int32_t row_tiles = 1; row_tiles <= cluster_most_row_tiles(tokens); ++row_tiles) {
      for (const int32_t mates : {1, 2}) {
        for (const int32_t num_clusters : {1 + row_tiles % 3, 1000}) {
          plans.push_back(
              {.cluster = {.tokens = tokens, .row_tiles = row_tiles, .mates = mates, .num_clusters = num_clusters}});
        }
      }
    }
  }
  return plans;
}

// The streaming kernel with one tile a warp and with many rounds, rings short and long.
std::vector<GeneratedPlan> stream_plans() {
  std::vector<GeneratedPlan> plans;
  for (const int32_t num_blocks : {1, 3, 1000}) {
    for (const int32_t stages : {1, 2, 5, 8}) plans.push_back({.stream = {num_blocks, stages}});
  }
  return plans;
}

std::string described(WeightType type, int32_t num_rows, const GeneratedPlan& plan) {
  return "type " + std::to_string(static_cast<int>(type)) + ", " + std::to_string(num_rows) +
         " rows: " + std::to_string(plan.cluster.tokens) + " tokens, " + std::to_string(plan.cluster.row_tiles) +
         " tiles, " + std::to_string(plan.cluster.mates) + " mates, " + std::to_string(plan.cluster.num_clusters) +
         " clusters";
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST_F(CudaMatmulTest, AllKernelsOfGeneratedRowsAgree) {
  Draw draw(6);
  for (const WeightType type : kTypes) {
    for (const auto& [rows, columns] : {std::pair{130, 256}, {300, 2560}, {1400, 1472}}) {
      const PackedMatrix packed(draw, type, rows, columns);
      for (const int32_t num_rows : {1, 2, 3, 4, 5, 8, 9, 24, 47, 64, 70}) {
        const std::vector<float> x = draw.floats(static_cast<size_t>(num_rows * columns), 2.0F);
        const SplitActivations split(x, num_rows, columns);
        const std::vector<float> expected =
            generated(packed, split, num_rows, {.num_partials = kNumSlices, .row_tiles = 1});
        std::vector<GeneratedPlan> plans = {{.num_partials = kNumSlices, .row_tiles = 2}};
        if (major_ >= 9 && num_rows <= 8) {
          for (const GeneratedPlan& plan : stream_plans()) plans.push_back(plan);
        }
        if (has_clusters()) {
          for (const GeneratedPlan& plan : cluster_plans()) plans.push_back(plan);
        }
        for (const GeneratedPlan& plan : plans) {
          ASSERT_TRUE(same_bits(generated(packed, split, num_rows, plan), expected))
              << described(type, num_rows, plan) << "; " << plan.stream.num_blocks << " blocks, " << plan.stream.stages
              << " stages";
        }
      }
    }
  }
}

TEST_F(CudaMatmulTest, ClustersGateAsTheKernelOfPartialSumsDoes) {
  if (!has_clusters()) GTEST_SKIP() << "the cluster kernel needs compute capability 9.0";
  Draw draw(7);
  for (const WeightType type : kTypes) {
    for (const auto& [rows, columns] : {std::pair{208, 512}, {1040, 1280}}) {
      const PackedMatrix packed(draw, type, rows, columns);
      for (const int32_t num_rows : {9, 30, 64, 66}) {
        const std::vector<float> x = draw.floats(static_cast<size_t>(num_rows * columns), 0.25F);
        const SplitActivations split(x, num_rows, columns);
        const std::vector<float> expected =
            gated(packed, split, num_rows, {.num_partials = kNumSlices, .row_tiles = 1});
        for (const GeneratedPlan& plan : cluster_plans()) {
          ASSERT_TRUE(same_bits(gated(packed, split, num_rows, plan), expected)) << described(type, num_rows, plan);
        }
      }
    }
  }
}

// Where the kernel exists, products of 9 rows and more must take it: none leaves partial sums.
TEST_F(CudaMatmulTest, HopperLeavesNoPartialSums) {
  if (!has_clusters()) GTEST_SKIP() << "the cluster kernel needs compute capability 9.0";
  for (const WeightType type : kTypes) {
    for (const auto& [rows, columns] : {std::pair{1024, 3072}, {2560, 9728}, {19456, 2560}, {151936, 5120}}) {
      const DeviceMatrix matrix{.type = type,
                                .rows = rows,
                                .columns = columns,
                                .padded_rows = static_cast<int32_t>(padded(rows, kPaddedRows)),
                                .padded_columns = static_cast<int32_t>(padded(columns, kPaddedColumns))};
      for (int32_t num_rows = 1; num_rows <= 256; ++num_rows) {
        const GeneratedPlan plan = plan_generated_matmul(matrix, num_rows, kSms);
        ASSERT_EQ(plan.num_partials, 1) << rows << " × " << columns << ", " << num_rows << " rows";
        ASSERT_NE(plan.cluster.num_clusters > 0, plan.stream.num_blocks > 0) << num_rows << " rows";
      }
    }
  }
}

// Gate rows and up rows take turns by eight.
TEST_F(CudaMatmulTest, GatedRowsMatchDoublePrecision) {
  Draw draw(5);
  constexpr double kLargestHalf = 65504.0;
  for (const WeightType type : kTypes) {
    for (const auto& [rows, columns] : {std::pair{208, 512}, {4224, 256}}) {
      const PackedMatrix packed(draw, type, rows, columns);
      for (const int32_t num_rows : {1, 2, 7, 16, 30, 66}) {
        const std::vector<float> x = draw.floats(static_cast<size_t>(num_rows * columns), 0.25F);
        const std::vector<float> found = gated(packed, SplitActivations(x, num_rows, columns), num_rows);
        for (int32_t i = 0; i < num_rows * rows / 2; ++i) {
          const std::span<const float> row(x.data() + i / (rows / 2) * columns, static_cast<size_t>(columns));
          const int32_t at = i % (rows / 2);
          const auto [gate, gate_magnitude] = packed_sum(packed, at / 8 * 16 + at % 8, row);
          const auto [up, up_magnitude] = packed_sum(packed, at / 8 * 16 + at % 8 + 8, row);
          const double silu = gate / (1.0 + std::exp(-gate));
          const double expected = silu * up * static_cast<double>(kSwigluScale);
          if (std::abs(expected) > 0.99 * kLargestHalf) continue;  // infinite, as scales.h says
          // silu's slope is below 1.1; two FP16 terms leave 2^-22, or half of FP16's smallest number.
          const double error = kGeneratedBound *
                                   (1.1 * gate_magnitude * (std::abs(up) + up_magnitude * kGeneratedBound) +
                                    std::abs(silu) * up_magnitude) *
                                   static_cast<double>(kSwigluScale) +
                               0x1p-20 * std::abs(expected) + 0x1p-24;
          ASSERT_NEAR(static_cast<double>(found[static_cast<size_t>(i)]), expected, error)
              << "type " << static_cast<int>(type) << ", " << num_rows << " rows, element " << i;
        }
      }
    }
  }
}

TEST_F(CudaMatmulTest, PromptRowsMatchDoublePrecision) {
  Draw draw(3);
  for (const WeightType type : kTypes) {
    for (const auto& [rows, columns] : {std::pair{4, 32}, {132, 192}, {256, 2560}}) {
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

// Every width of a tile of tokens, more clusters than tiles and so few that each has many, weight rows that leave a
// cluster's second block without any, and more tokens than one band.
TEST_F(CudaMatmulTest, APromptRowDoesNotDependOnItsMatesNorOnTheTiles) {
  if (major_ != 9) GTEST_SKIP() << "wgmma needs compute capability 9.0";
  Draw draw(4);
  for (const auto& [rows, columns] : {std::pair{300, 512}, {1000, 2560}, {100, 256}}) {
    const PackedMatrix packed(draw, WeightType::kBf16, rows, columns);
    constexpr int32_t kMost = 2500;
    const std::vector<float> x = draw.floats(static_cast<size_t>(kMost * columns), 2.0F);
    const std::vector<float> all = prompt(packed, SplitActivations(x, kMost, columns), kMost, kSms, false);
    check(packed, x, all, 3, kPromptBound);
    for (const int32_t num_rows : {1, 7, 64, 65, 160, 255, 256, 400, 799, kMost}) {
      const SplitActivations split(x, num_rows, columns);
      for (const int32_t tokens : kPromptTileTokens) {
        for (const int32_t num_sms : {1, 5, kSms}) {
          const std::vector<float> some = prompt(packed, split, num_rows, num_sms, false, tokens);
          ASSERT_EQ(std::memcmp(some.data(), all.data(), some.size() * sizeof(float)), 0)
              << rows << " × " << columns << ", " << num_rows << " rows, tiles of " << tokens << " tokens, " << num_sms
              << " multiprocessors";
        }
      }
    }
  }
}

TEST_F(CudaMatmulTest, RefusesAnOutputThatTheCopyEngineWouldWriteBeyond) {
  if (major_ != 9) GTEST_SKIP() << "wgmma needs compute capability 9.0";
  Draw draw(9);
  const PackedMatrix packed(draw, WeightType::kBf16, 128, 64);
  const SplitActivations split(draw.floats(64, 1.0F), 1, 64);
  const DeviceArray<float> out(256);
  MatmulArgs args{.matrix = packed.matrix,
                  .x = split.view(),
                  .to = {.out = out.get(), .stride = 128, .width = 126},
                  .out_scale = 1.0F,
                  .num_rows = 1,
                  .swiglu = false};
  EXPECT_EQ(prompt_matmul_wgmma(args, 64, kSms, {}), cudaErrorInvalidValue);
  args.to = {.out = out.get(), .stride = 126, .width = 124};
  EXPECT_EQ(prompt_matmul_wgmma(args, 64, kSms, {}), cudaErrorInvalidValue);
  args.to = {.out = out.get(), .stride = 128, .width = 128, .accumulate = true};
  EXPECT_EQ(prompt_matmul_wgmma(args, 64, kSms, {}), cudaErrorInvalidValue);
  args.to.accumulate = false;
  EXPECT_EQ(prompt_matmul_wgmma(args, 96, kSms, {}), cudaErrorInvalidValue);
}

// The activation that leaves instead of gate and up is that of the sums, rounded to FP16.
TEST_F(CudaMatmulTest, PromptRowsAreGatedAsTheirSumsAre) {
  if (major_ != 9) GTEST_SKIP() << "wgmma needs compute capability 9.0";
  Draw draw(8);
  for (const auto& [rows, columns] : {std::pair{208, 512}, {1040, 256}}) {
    const PackedMatrix packed(draw, WeightType::kBf16, rows, columns);
    const int32_t width = rows / 2;
    const int32_t stride = width + 8;
    for (const int32_t num_rows : {1, 33, 300}) {
      const std::vector<float> x = draw.floats(static_cast<size_t>(num_rows * columns), 0.25F);
      const SplitActivations split(x, num_rows, columns);
      const std::vector<float> sums = prompt(packed, split, num_rows, kSms, false);
      for (const int32_t tokens : kPromptTileTokens) {
        constexpr uint16_t kPoison = 0x7EAD;
        const DeviceArray<uint16_t> out(std::vector<uint16_t>(static_cast<size_t>((num_rows + 1) * stride), kPoison));
        MatmulArgs args{.matrix = packed.matrix,
                        .x = split.view(),
                        .to = {.high = reinterpret_cast<__half*>(out.get()), .stride = stride, .width = width},
                        .out_scale = 1.0F / packed.matrix.fp16_scale,
                        .num_rows = num_rows,
                        .swiglu = true};
        ASSERT_EQ(prompt_matmul_wgmma(args, tokens, kSms, {}), cudaSuccess);
        const std::vector<uint16_t> found = out.read();
        for (int32_t i = 0; i < (num_rows + 1) * stride; ++i) {
          const int32_t at = i % stride;
          if (i / stride >= num_rows || at >= width) {
            ASSERT_EQ(found[static_cast<size_t>(i)], kPoison) << "element " << i;
            continue;
          }
          const auto first = static_cast<size_t>(i / stride * rows + at / 8 * 16 + at % 8);
          const float gate = sums[first];
          const auto expected =
              static_cast<double>(gate) / (1.0 + std::exp(-static_cast<double>(gate))) * sums[first + 8] * kSwigluScale;
          if (std::abs(expected) > 0.99 * 65504.0) continue;  // infinite, as scales.h says
          ASSERT_NEAR(half_value(found[static_cast<size_t>(i)]), expected, 0x1p-10 * std::abs(expected) + 0x1p-24)
              << num_rows << " rows, tiles of " << tokens << " tokens, element " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace kipp::cuda
