// The norm of the residual stream against double precision, and the same norm made by a product's own kernel.
#include <algorithm>
#include <cmath>

#include "backend/cuda/kernels/matmul.h"
#include "backend/cuda/kernels/rms_norm.h"
#include "base/bf16.h"
#include "cuda/packed_matrix.h"

namespace kipp::cuda {
namespace {

constexpr float kEpsilon = 1e-6F;
constexpr float kScale = 0.25F;
constexpr uint16_t kPoison = 0x7EAD;

// A residual stream, what is to be added to it, and a norm's weights.
struct Stream {
  int32_t num_rows, hidden, num_partials;
  std::vector<float> residual, delta;
  std::vector<uint16_t> weight;

  Stream(uint64_t seed, int32_t rows, int32_t width, int32_t partials)
      : num_rows(rows),
        hidden(width),
        num_partials(partials),
        residual(uniform_floats(seed, static_cast<size_t>(rows * width), 30.0F)),
        delta(uniform_floats(seed + 1, static_cast<size_t>(partials * rows * width), 5.0F)),
        weight(static_cast<size_t>(width)) {
    const std::vector<float> values = uniform_floats(seed + 2, weight.size(), 4.0F);
    std::ranges::transform(values, weight.begin(), f32_to_bf16);
  }

  // Row r with the partial sums, added in their order in FP32.
  std::vector<float> row(int32_t r) const {
    std::vector<float> sums;
    for (int32_t c = 0; c < hidden; ++c) {
      const auto at = static_cast<size_t>(r * hidden + c);
      float added = 0.0F;
      for (int32_t p = 0; p < num_partials; ++p) {
        const float next = delta[static_cast<size_t>(p * num_rows * hidden) + at];
        added = p == 0 ? next : added + next;
      }
      sums.push_back(num_partials == 0 ? residual[at] : residual[at] + added);
    }
    return sums;
  }
  std::vector<double> normalised(int32_t r) const {
    const std::vector<float> x = row(r);
    double squares = 0.0;
    for (const float value : x) squares += double{value} * double{value};
    const double factor = 1.0 / std::sqrt(squares / hidden + double{kEpsilon});
    std::vector<double> out;
    for (size_t c = 0; c < x.size(); ++c) out.push_back(double{x[c]} * factor * double{bf16_to_f32(weight[c])});
    return out;
  }
};

struct Normed {
  std::vector<uint16_t> high, low;
  std::vector<float> residual;
  float value(size_t at) const { return (half_value(high[at]) + half_value(low[at])) / kScale; }
};

class CudaNormTest : public CudaTest {
 protected:
  static Normed normalise(const Stream& stream, const std::vector<int32_t>& rows, int32_t stride, bool store) {
    const auto num_rows = static_cast<int32_t>(rows.empty() ? static_cast<size_t>(stream.num_rows) : rows.size());
    const DeviceArray<float> residual(stream.residual);
    const DeviceArray<float> delta(stream.delta);
    const DeviceArray<uint16_t> weight(stream.weight);
    const DeviceArray<int32_t> device_rows(rows);
    const std::vector<uint16_t> poison(static_cast<size_t>((num_rows + 1) * stride), kPoison);
    const DeviceArray<uint16_t> high(poison);
    const DeviceArray<uint16_t> low(poison);
    EXPECT_EQ(residual_norm({.residual = residual.get(),
                             .delta = stream.num_partials == 0 ? nullptr : delta.get(),
                             .partial_stride = int64_t{stream.num_rows} * stream.hidden,
                             .num_partials = stream.num_partials,
                             .store_residual = store,
                             .rows = rows.empty() ? nullptr : device_rows.get(),
                             .weight = weight.get(),
                             .epsilon = kEpsilon,
                             .scale = kScale,
                             .high = reinterpret_cast<__half*>(high.get()),
                             .low = reinterpret_cast<__half*>(low.get()),
                             .num_rows = num_rows,
                             .hidden = stream.hidden,
                             .stride = stride},
                            {}),
              cudaSuccess);
    return {high.read(), low.read(), residual.read()};
  }
};

TEST_F(CudaNormTest, MatchesDoublePrecisionAndStoresTheSums) {
  for (const int32_t hidden : {192, 1024, 2048, 2560, 4096, 5120}) {
    for (const int32_t partials : {0, 1, 4}) {
      const Stream stream(static_cast<uint64_t>(hidden + partials), 3, hidden, partials);
      const int32_t stride = hidden + 64;
      const Normed found = normalise(stream, {}, stride, partials > 0);
      for (int32_t r = 0; r < 3; ++r) {
        const std::vector<float> sums = stream.row(r);
        const std::vector<double> expected = stream.normalised(r);
        for (int32_t c = 0; c < stride; ++c) {
          const auto at = static_cast<size_t>(r * stride + c);
          if (c >= hidden) {
            ASSERT_TRUE(found.high[at] == kPoison && found.low[at] == kPoison) << "row " << r << ", column " << c;
            continue;
          }
          const auto i = static_cast<size_t>(c);
          ASSERT_NEAR(found.value(at), expected[i], 1e-6 * (1.0 + std::abs(expected[i]))) << hidden << ", column " << c;
          ASSERT_EQ(found.residual[static_cast<size_t>(r * hidden + c)], sums[i]) << hidden << ", column " << c;
        }
      }
      ASSERT_TRUE(
          std::all_of(found.high.begin() + 3 * stride, found.high.end(), [](uint16_t v) { return v == kPoison; }));
    }
  }
}

TEST_F(CudaNormTest, TakesTheRowsThatItIsGiven) {
  const Stream stream(7, 5, 1024, 0);
  const Normed all = normalise(stream, {}, 1024, false);
  const std::vector<int32_t> rows = {4, 1, 1};
  const Normed some = normalise(stream, rows, 1024, false);
  for (size_t i = 0; i < rows.size() * 1024; ++i) {
    const size_t from = static_cast<size_t>(rows[i / 1024]) * 1024 + i % 1024;
    ASSERT_EQ(some.high[i], all.high[from]);
    ASSERT_EQ(some.low[i], all.low[from]);
  }
}

TEST_F(CudaNormTest, RefusesWidthsThatItHasNoRoomFor) {
  ResidualNormArgs args{};
  args.num_rows = 1;
  for (const int32_t hidden : {kMaxNormWidth + 4, 1022}) {
    args.hidden = hidden;
    EXPECT_EQ(residual_norm(args, {}), cudaErrorInvalidValue) << hidden;
  }
}

// A product under a norm, and one that adds to the residual stream, both against the kernels that do it one by one.
class CudaFusedProductTest : public CudaNormTest {
 protected:
  static constexpr int32_t kSms = 132;

  static bool streams() {
    int major = 0;
    return cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) == cudaSuccess && major >= 9;
  }
  static std::vector<float> product(const PackedMatrix& packed, const GeneratedPlan& plan, int32_t num_rows,
                                    const Activations& x, const NormedRows& norm, const std::vector<float>* add_to) {
    const auto count = static_cast<size_t>(num_rows * packed.matrix.rows);
    const DeviceArray<float> out(add_to == nullptr ? std::vector<float>(count) : *add_to);
    EXPECT_EQ(generated_matmul({.matrix = packed.matrix,
                                .x = x,
                                .to = {.out = out.get(),
                                       .stride = packed.matrix.rows,
                                       .width = packed.matrix.rows,
                                       .accumulate = add_to != nullptr},
                                .out_scale = 0.5F,
                                .num_rows = num_rows,
                                .swiglu = false,
                                .norm = norm},
                               plan, {}),
              cudaSuccess);
    return out.read();
  }
};

TEST_F(CudaFusedProductTest, AProductsOwnNormHasTheBitsOfTheNormsKernel) {
  Draw draw(11);
  for (const WeightType type : {WeightType::kBf16, WeightType::kQ8_0, WeightType::kAffine4Gs32}) {
    for (const int32_t hidden : {192, 1024, 2560, 5120}) {
      const PackedMatrix packed(draw, type, 300, hidden);
      for (int32_t num_rows = 1; num_rows <= 2; ++num_rows) {
        const GeneratedPlan plan = plan_generated_matmul(packed.matrix, num_rows, kSms);
        if (!streams()) GTEST_SKIP() << "the kernel needs compute capability 9.0";
        ASSERT_TRUE(can_normalise(packed.matrix, plan, num_rows)) << hidden;
        const Stream stream(static_cast<uint64_t>(hidden), num_rows, hidden, 0);
        const int32_t stride = packed.matrix.padded_columns;
        const Normed normed = normalise(stream, {}, stride, false);
        const auto zero_padding = [&](std::vector<uint16_t> terms) {
          terms.resize(static_cast<size_t>(64 * stride));
          for (size_t i = 0; i < terms.size(); ++i) {
            if (static_cast<int32_t>(i) % stride >= hidden) terms[i] = 0;
          }
          return terms;
        };
        const DeviceArray<uint16_t> high(zero_padding(normed.high));
        const DeviceArray<uint16_t> low(zero_padding(normed.low));
        const Activations x{reinterpret_cast<const __half*>(high.get()), reinterpret_cast<const __half*>(low.get()),
                            stride};
        const DeviceArray<float> residual(stream.residual);
        const DeviceArray<uint16_t> weight(stream.weight);
        const NormedRows norm{residual.get(), weight.get(), hidden, kEpsilon, kScale};
        const std::vector<float> expected = product(packed, plan, num_rows, x, {}, nullptr);
        for (const int32_t num_blocks : {plan.stream.num_blocks, 1, 3}) {  // with many tiles of rows each
          const GeneratedPlan cut{.stream = {num_blocks, plan.stream.stages}};
          ASSERT_EQ(product(packed, cut, num_rows, {}, norm, nullptr), expected)
              << "type " << static_cast<int>(type) << ", hidden " << hidden << ", " << num_rows << " rows, "
              << num_blocks << " blocks";
        }
      }
    }
  }
}

TEST_F(CudaFusedProductTest, AddsItsSumsToWhatIsThere) {
  Draw draw(12);
  for (const WeightType type : {WeightType::kBf16, WeightType::kQ8_0, WeightType::kAffine4Gs32}) {
    const PackedMatrix packed(draw, type, 1030, 512);
    for (const int32_t num_rows : {1, 5, 9, 40, 70}) {
      const GeneratedPlan plan = plan_generated_matmul(packed.matrix, num_rows, kSms);
      const SplitActivations x(draw.floats(static_cast<size_t>(num_rows * 512), 2.0F), num_rows, 512);
      const std::vector<float> before = uniform_floats(13, static_cast<size_t>(num_rows * 1030), 8.0F);
      if (plan.num_partials != 1) continue;  // before Hopper: the norm adds the partial sums
      std::vector<float> expected = product(packed, plan, num_rows, x.view(), {}, nullptr);
      for (size_t i = 0; i < expected.size(); ++i) expected[i] = before[i] + expected[i];
      ASSERT_EQ(product(packed, plan, num_rows, x.view(), {}, &before), expected)
          << "type " << static_cast<int>(type) << ", " << num_rows << " rows";
    }
  }
}

TEST_F(CudaFusedProductTest, RefusesANormWhereNoKernelMakesOne) {
  Draw draw(14);
  const PackedMatrix packed(draw, WeightType::kBf16, 128, 256);
  const DeviceArray<float> out(static_cast<size_t>(3 * 128));
  MatmulArgs args{.matrix = packed.matrix,
                  .x = {},
                  .to = {.out = out.get(), .stride = 128, .width = 128},
                  .out_scale = 1.0F,
                  .num_rows = 3,
                  .swiglu = false,
                  .norm = {.residual = out.get(), .width = 256}};
  EXPECT_EQ(generated_matmul(args, plan_generated_matmul(packed.matrix, 3, kSms), {}), cudaErrorInvalidValue);
  args.norm = {};
  args.to.accumulate = true;
  EXPECT_EQ(generated_matmul(args, {.num_partials = kNumSlices, .row_tiles = 1}, {}), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace kipp::cuda
