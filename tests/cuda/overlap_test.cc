// Kernels that overlap as a step's do, programmatic dependents one of the other, against the same ones in turn: a read
// or a write that comes before wait_for_previous() shows as other bits.
#include <array>
#include <cmath>

#include "backend/cuda/kernels/matmul.h"
#include "backend/cuda/kernels/rms_norm.h"
#include "backend/cuda/scales.h"
#include "cuda/packed_matrix.h"

namespace kipp::cuda {
namespace {

constexpr int32_t kHidden = 512;
constexpr int32_t kFfn = 1536;
constexpr int32_t kRounds = 24;
constexpr int32_t kSms = 132;
constexpr float kNormScale = 0.25F;
constexpr float kCalm = 0x1p-4F;  // of every product, so that the stream stays finite
constexpr float kEpsilon = 1e-6F;

// Norm, gate and up with their activation, down into the residual stream; and again, over one set of buffers.
class Chain {
 public:
  Chain(Draw& draw, WeightType type, int32_t num_rows, bool is_prompt)
      : gate_up_(draw, type, 2 * kFfn, kHidden),
        down_(draw, type, kHidden, kFfn),
        num_rows_(num_rows),
        is_prompt_(is_prompt),
        start_(draw.floats(static_cast<size_t>(num_rows * kHidden), 2.0F)),
        weight_(draw.bf16(kHidden, 1.0F)),
        residual_(start_.size()),
        delta_(start_.size()),
        normed_(terms(kHidden)),
        activated_(terms(kFfn)) {}

  // The residual stream after all rounds.
  std::vector<float> run(bool overlap, bool in_graph) {
    EXPECT_EQ(cudaMemcpy(residual_.get(), start_.data(), start_.size() * sizeof(float), cudaMemcpyHostToDevice),
              cudaSuccess);
    cudaStream_t stream = nullptr;
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    if (in_graph) {
      cudaGraph_t graph = nullptr;
      cudaGraphExec_t exec = nullptr;
      EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
      rounds({stream, overlap});
      EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
      EXPECT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
      EXPECT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
      EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
      cudaGraphExecDestroy(exec);
      cudaGraphDestroy(graph);
    } else {
      rounds({stream, overlap});
    }
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    cudaStreamDestroy(stream);
    return residual_.read();
  }

 private:
  using Terms = std::array<DeviceArray<uint16_t>, 2>;  // high, low: zeros in columns and rows that nobody writes

  Terms terms(int32_t columns) const {
    const auto count = static_cast<size_t>(padded(num_rows_, 64) * padded(columns, kPaddedColumns));
    const std::vector<uint16_t> zeros(count);
    return {DeviceArray<uint16_t>(zeros), DeviceArray<uint16_t>(zeros)};
  }
  static __half* half(const DeviceArray<uint16_t>& array) { return reinterpret_cast<__half*>(array.get()); }

  void rounds(LaunchContext context) const {
    const bool overlap = context.overlap;
    context.overlap = false;  // the first one follows a copy
    bool has_delta = false;
    for (int32_t i = 0; i < kRounds; ++i) {
      const GeneratedPlan plan = plan_generated_matmul(gate_up_.matrix, num_rows_, kSms);
      MatmulArgs gates = product(gate_up_, normed_, kNormScale);
      gates.swiglu = true;
      gates.to = {.high = half(activated_[0]),
                  .low = is_prompt_ ? nullptr : half(activated_[1]),
                  .stride = down_.matrix.padded_columns,
                  .width = kFfn};
      if (!is_prompt_ && can_normalise(gate_up_.matrix, plan, num_rows_)) {
        gates.norm = {residual_.get(), weight_.get(), kHidden, kEpsilon, kNormScale};
      } else {
        norm(has_delta, context);
        context.overlap = overlap;
      }
      multiply(gates, plan, context);
      context.overlap = overlap;
      MatmulArgs back = product(down_, activated_, kSwigluScale);
      back.to = {.out = is_prompt_ ? delta_.get() : residual_.get(),
                 .stride = kHidden,
                 .width = kHidden,
                 .accumulate = !is_prompt_};
      multiply(back, plan_generated_matmul(down_.matrix, num_rows_, kSms), context);
      has_delta = is_prompt_;
    }
    if (has_delta) norm(true, context);
  }

  void norm(bool has_delta, const LaunchContext& context) const {
    EXPECT_EQ(residual_norm({.residual = residual_.get(),
                             .delta = has_delta ? delta_.get() : nullptr,
                             .partial_stride = 0,
                             .num_partials = has_delta ? 1 : 0,
                             .store_residual = has_delta,
                             .rows = nullptr,
                             .weight = weight_.get(),
                             .epsilon = kEpsilon,
                             .scale = kNormScale,
                             .high = half(normed_[0]),
                             .low = is_prompt_ ? nullptr : half(normed_[1]),
                             .num_rows = num_rows_,
                             .hidden = kHidden,
                             .stride = gate_up_.matrix.padded_columns},
                            context),
              cudaSuccess);
  }
  MatmulArgs product(const PackedMatrix& packed, const Terms& x, float scale_of_x) const {
    const bool fp16 = packed.matrix.type == WeightType::kBf16;
    return {.matrix = packed.matrix,
            .x = {half(x[0]), half(x[1]), packed.matrix.padded_columns},
            .to = {},
            .out_scale = kCalm / scale_of_x / (fp16 ? packed.matrix.fp16_scale : 1.0F),
            .num_rows = num_rows_,
            .swiglu = false};
  }
  void multiply(const MatmulArgs& args, const GeneratedPlan& plan, const LaunchContext& context) const {
    if (is_prompt_) {
      EXPECT_EQ(prompt_matmul_wgmma(args, plan_prompt_matmul(args, kSms), kSms, context), cudaSuccess);
    } else {
      EXPECT_EQ(generated_matmul(args, plan, context), cudaSuccess);
    }
  }

  PackedMatrix gate_up_, down_;
  int32_t num_rows_;
  bool is_prompt_;
  std::vector<float> start_;
  DeviceArray<uint16_t> weight_;
  DeviceArray<float> residual_, delta_;
  Terms normed_, activated_;
};

class CudaOverlapTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    int major = 0;
    if (!IsSkipped() &&
        (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) != cudaSuccess || major != 9)) {
      GTEST_SKIP() << "kernels overlap from compute capability 9.0 on, and prompts need wgmma";
    }
  }
  static void check(WeightType type, int32_t num_rows, bool is_prompt) {
    Draw draw(static_cast<uint64_t>(num_rows + (is_prompt ? 1000 : 0)));
    Chain chain(draw, type, num_rows, is_prompt);
    const std::vector<float> expected = chain.run(false, false);
    for (const float value : expected) ASSERT_TRUE(std::isfinite(value)) << num_rows << " rows";
    for (int32_t again = 0; again < 20; ++again) {
      for (const bool in_graph : {false, true}) {
        ASSERT_EQ(chain.run(true, in_graph), expected)
            << "type " << static_cast<int>(type) << ", " << num_rows << (is_prompt ? " prompt" : " generated")
            << (in_graph ? " rows in a graph" : " rows");
      }
    }
  }
};

TEST_F(CudaOverlapTest, GeneratedRowsHaveTheBitsOfKernelsInTurn) {
  for (const WeightType type : {WeightType::kBf16, WeightType::kQ8_0, WeightType::kAffine4Gs32}) {
    for (const int32_t num_rows : {1, 2, 3, 4, 5, 8, 9, 24, 64, 70}) {
      check(type, num_rows, false);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(CudaOverlapTest, PromptRowsHaveTheBitsOfKernelsInTurn) {
  for (const int32_t num_rows : {1, 130, 700}) {
    check(WeightType::kBf16, num_rows, true);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace kipp::cuda
