// What a call of the device sampler takes, printed; a call of 10 ms fails.
#include <fmt/format.h>

#include <array>
#include <cstdio>

#include "cuda/device_sampler.h"
#include "cuda/sample_cases.h"

namespace kipp::cuda {
namespace {

constexpr int32_t kVocab = 151936;
constexpr int32_t kTokens = 151669;

struct Setting {
  const char* name;
  SamplingParams params;
  int32_t num_logprobs = -1;
};

struct RowKind {
  const char* name;
  uint32_t kind;  // SampleCases::random_row
};

class CudaSampleTiming : public CudaTest {};

// Microseconds of one call: a graph of calls, so that the host's time to launch does not count.
void time_call(DeviceSampler& sampler, int32_t num_rows, const SampleBatch* batch, float& microseconds) {
  constexpr int32_t kCalls = 20;
  constexpr int32_t kReplays = 10;
  const LaunchContext context = sampler.context(true);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t instance = nullptr;
  KIPP_CUDA_OK(cudaStreamBeginCapture(context.stream, cudaStreamCaptureModeThreadLocal));
  for (int32_t i = 0; i < kCalls; ++i) {
    const SampleArgs args = sampler.args(num_rows);
    KIPP_CUDA_OK(batch == nullptr ? sample_greedy(args, context) : sample(args, *batch, context));
  }
  KIPP_CUDA_OK(cudaStreamEndCapture(context.stream, &graph));
  KIPP_CUDA_OK(cudaGraphInstantiate(&instance, graph, 0));
  KIPP_CUDA_OK(cudaGraphLaunch(instance, context.stream));
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  KIPP_CUDA_OK(cudaEventCreate(&begin));
  KIPP_CUDA_OK(cudaEventCreate(&end));
  KIPP_CUDA_OK(cudaEventRecord(begin, context.stream));
  for (int32_t i = 0; i < kReplays; ++i) {
    KIPP_CUDA_OK(cudaGraphLaunch(instance, context.stream));
  }
  KIPP_CUDA_OK(cudaEventRecord(end, context.stream));
  KIPP_CUDA_OK(cudaEventSynchronize(end));
  float milliseconds = 0.0F;
  KIPP_CUDA_OK(cudaEventElapsedTime(&milliseconds, begin, end));
  microseconds = milliseconds * 1e3F / (kCalls * kReplays);
  KIPP_CUDA_OK(cudaEventDestroy(begin));
  KIPP_CUDA_OK(cudaEventDestroy(end));
  KIPP_CUDA_OK(cudaGraphExecDestroy(instance));
  KIPP_CUDA_OK(cudaGraphDestroy(graph));
}

TEST_F(CudaSampleTiming, OneRowAndSixtyFour) {
  const std::array<Setting, 8> settings = {{
      {"greedy", {.temperature = 0.0F}},
      {"temperature 0.7", {.temperature = 0.7F}},
      {"temperature 0.6, top_k 20, top_p 0.95", {.temperature = 0.6F, .top_k = 20, .top_p = 0.95F}},
      {"top_p 0.9", {.top_p = 0.9F}},
      {"top_k 2000", {.top_k = 2000}},
      {"min_p 0.1", {.min_p = 0.1F}},
      {"greedy, log-probability", {.temperature = 0.0F}, 0},
      {"greedy, 20 log-probabilities", {.temperature = 0.0F}, 20},
  }};
  const std::array<RowKind, 3> kinds = {{{"normal", 0}, {"trained", 7}, {"all equal", 2}}};
  DeviceSampler sampler(kVocab, kTokens, 64, 64);
  std::puts("microseconds a call:");
  for (const RowKind& kind : kinds) {
    for (const Setting& setting : settings) {
      std::string line = fmt::format("{:10} {:40}", kind.name, setting.name);
      for (const int32_t num_rows : {1, 8, 64}) {
        SampleCases cases(1, kVocab, kTokens);
        const std::vector<float> row = cases.random_row(kind.kind);
        for (int32_t r = 0; r < num_rows; ++r) {
          SampleRequest& request = cases.add(setting.params, row);
          request.position = r;
          request.num_logprobs = setting.num_logprobs;
        }
        sampler.upload(cases.logits());
        const auto batch = sampler.prepare(cases.requests());
        ASSERT_TRUE(batch.has_value()) << batch.error().message;
        float microseconds = 0.0F;
        time_call(sampler, num_rows, sampler.needs_options() ? &*batch : nullptr, microseconds);
        line += fmt::format("  {:2} rows {:8.1f}", num_rows, static_cast<double>(microseconds));
        EXPECT_LT(microseconds, 10'000.0F);
      }
      std::puts(line.c_str());
    }
  }
}

}  // namespace
}  // namespace kipp::cuda
