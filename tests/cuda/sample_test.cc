// The device sampler against the host's, bit for bit: ids, log-probabilities and the best of them.
#include "backend/cuda/kernels/sample.h"

#include <array>
#include <bit>
#include <string>

#include "cuda/device_sampler.h"
#include "cuda/sample_cases.h"
#include "sampling/sampler.h"

namespace kipp::cuda {
namespace {

constexpr int32_t kVocab = 151936;

std::string describe(const SampleRequest& request) {
  const SamplingParams& p = *request.params;
  return "temperature " + std::to_string(p.temperature) + ", top_k " + std::to_string(p.top_k) + ", top_p " +
         std::to_string(p.top_p) + ", min_p " + std::to_string(p.min_p) + ", penalties " +
         std::to_string(p.repetition_penalty) + " " + std::to_string(p.presence_penalty) + " " +
         std::to_string(p.frequency_penalty) + ", biases " + std::to_string(p.logit_bias.size()) +
         (request.mask != nullptr ? ", mask" : "") + ", logprobs " + std::to_string(request.num_logprobs);
}

void expect_row(const RowResult& found, const SampleCases& cases, size_t r) {
  const SampleRequest& request = cases.requests()[r];
  SCOPED_TRACE("row " + std::to_string(r) + ": " + describe(request));
  const Result<SampledToken> expected = sample_token(cases.row(r), request, cases.num_tokens());
  if (!expected) {
    ASSERT_EQ(expected.error().code, ErrorCode::kNumerical) << expected.error().message;
    EXPECT_FALSE(found.finite);
    EXPECT_EQ(found.token.id, -1);
    return;
  }
  EXPECT_TRUE(found.finite);
  EXPECT_EQ(found.token.id, expected->id);
  EXPECT_EQ(std::bit_cast<uint32_t>(found.token.logprob), std::bit_cast<uint32_t>(expected->logprob));
  ASSERT_EQ(found.token.top_logprobs.size(), expected->top_logprobs.size());
  for (size_t i = 0; i < expected->top_logprobs.size(); ++i) {
    EXPECT_EQ(found.token.top_logprobs[i].first, expected->top_logprobs[i].first) << "rank " << i;
    EXPECT_EQ(std::bit_cast<uint32_t>(found.token.top_logprobs[i].second),
              std::bit_cast<uint32_t>(expected->top_logprobs[i].second))
        << "rank " << i;
  }
}

void expect_equal_to_host(DeviceSampler& sampler, const SampleCases& cases, bool overlap) {
  sampler.upload(cases.logits());
  const Result<SampleBatch> batch = sampler.prepare(cases.requests());
  ASSERT_TRUE(batch.has_value()) << batch.error().message;
  KIPP_CUDA_OK(sample(sampler.args(cases.num_rows()), *batch, sampler.context(overlap)));
  const std::vector<RowResult> found = sampler.read(cases.num_rows());
  for (size_t r = 0; r < found.size() && !testing::Test::HasFailure(); ++r) {
    expect_row(found[r], cases, r);
  }
}

class CudaSampleTest : public CudaTest {};

struct Size {
  int32_t vocab, num_tokens, num_rows, rounds;
};

void expect_random_rows_equal(const Size& size) {
  DeviceSampler sampler(size.vocab, size.num_tokens, size.num_rows, size.num_rows);
  for (int32_t round = 0; round < size.rounds && !testing::Test::HasFailure(); ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    SampleCases cases(static_cast<uint64_t>(round), size.vocab, size.num_tokens);
    for (int32_t r = 0; r < size.num_rows; ++r) {
      cases.add_random();
    }
    expect_equal_to_host(sampler, cases, round % 2 == 0);
  }
}

TEST_F(CudaSampleTest, SmallVocabularies) {
  expect_random_rows_equal({400, 390, 64, 60});
  expect_random_rows_equal({400, 399, 3, 20});
  expect_random_rows_equal({4, 1, 2, 20});
  expect_random_rows_equal({8, 5, 7, 40});
  expect_random_rows_equal({3000, 2999, 17, 20});
}

TEST_F(CudaSampleTest, OneRow) {
  expect_random_rows_equal({kVocab, 151669, 1, 150});
}
TEST_F(CudaSampleTest, ThreeRows) {
  expect_random_rows_equal({kVocab, 151665, 3, 50});
}
TEST_F(CudaSampleTest, SixtyFourRows) {
  expect_random_rows_equal({kVocab, 151669, 64, 12});
}

TEST_F(CudaSampleTest, MoreRowsThanTheWorkspaceHas) {
  SampleCases cases(5, 400, 390);
  for (int32_t r = 0; r < 23; ++r) {
    cases.add_random();
  }
  DeviceSampler sampler(400, 390, 23, 5);
  expect_equal_to_host(sampler, cases, true);
}

TEST_F(CudaSampleTest, RowsThatAreNotFiniteHarmNoOther) {
  SampleCases cases(6, 3000, 2990);
  for (int32_t r = 0; r < 40; ++r) {
    cases.add_random();
  }
  constexpr std::array kBad = {kNan, kInfinity, -kInfinity, -kNan};
  for (size_t r = 0; r < 40; r += 3) {
    const size_t id = r * 76 % 2990;
    cases.logits()[r * 3000 + id] = kBad[r / 3 % kBad.size()];
  }
  DeviceSampler sampler(3000, 2990, 40, 40);
  expect_equal_to_host(sampler, cases, true);
  expect_equal_to_host(sampler, cases, false);  // the counters are as they were
}

TEST_F(CudaSampleTest, ABannedLogitThatIsNotFiniteIsAnErrorToo) {
  SampleCases cases(7, 400, 390);
  SamplingParams params;
  params.logit_bias = {{17, -kInfinity}};
  std::vector<float> row = cases.random_row(0);
  row[17] = kInfinity;
  cases.add(params, row);
  DeviceSampler sampler(400, 390, 1, 1);
  expect_equal_to_host(sampler, cases, false);
}

TEST_F(CudaSampleTest, LeavesTheLogitsAlone) {
  SampleCases cases(8, 400, 390);
  for (int32_t r = 0; r < 20; ++r) {
    cases.add_random();
  }
  DeviceSampler sampler(400, 390, 20, 20);
  expect_equal_to_host(sampler, cases, false);
  const std::vector<float> after = sampler.logits();
  for (size_t i = 0; i < after.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(after[i]), std::bit_cast<uint32_t>(cases.logits()[i])) << i;
  }
}

// Every row kind by every common setting, so that none depends on the dice of add_random.
TEST_F(CudaSampleTest, CommonSettingsOnEveryKindOfRow) {
  const std::array<SamplingParams, 8> settings = {{{.temperature = 0.0F},
                                                   {.temperature = 1.0F},
                                                   {.temperature = 0.6F, .top_k = 20, .top_p = 0.95F},
                                                   {.temperature = 0.7F, .top_p = 0.8F},
                                                   {.temperature = 1.0F, .top_k = 50},
                                                   {.temperature = 1.5F, .top_k = 5000, .top_p = 0.99F, .min_p = 0.01F},
                                                   {.temperature = 1.0F, .min_p = 0.1F},
                                                   {.temperature = 100.0F, .top_p = 0.5F}}};
  SampleCases cases(9, kVocab, 151669);
  for (uint32_t kind = 0; kind < SampleCases::kRowKinds; ++kind) {
    const std::vector<float> row = cases.random_row(kind);
    for (const SamplingParams& params : settings) {
      SampleRequest& request = cases.add(params, row);
      request.seed = kind;
      request.num_logprobs = kind % 2 == 0 ? 20 : -1;
    }
  }
  DeviceSampler sampler(kVocab, 151669, cases.num_rows(), 64);
  expect_equal_to_host(sampler, cases, true);
}

// A few neighbours of two values: kept ties, dropped ones and better tokens alternate where a single thread walks.
TEST_F(CudaSampleTest, TiesAmongTheIdsThatOneThreadWalks) {
  constexpr int32_t kRows = 64;
  constexpr int32_t kAllowed = 30;
  std::mt19937_64 random(11);
  SampleCases cases(11, kVocab, 151669);
  std::vector<std::vector<uint32_t>> masks(kRows, std::vector<uint32_t>(kVocab / 32, 0U));
  for (size_t r = 0; r < kRows; ++r) {
    std::vector<float> row = cases.random_row(2);
    const size_t begin = random() % (151669 - kAllowed);
    for (size_t id = begin; id < begin + kAllowed; ++id) {
      masks[r][id / 32] |= 1U << (id % 32);
      row[id] = random() % 2 == 0 ? 1.0F : 1.5F;
    }
    SampleRequest& request = cases.add({.top_k = static_cast<int32_t>(1 + random() % kAllowed)}, row);
    request.seed = r;
    request.mask = masks[r].data();
  }
  DeviceSampler sampler(kVocab, 151669, kRows, kRows);
  expect_equal_to_host(sampler, cases, true);
}

// Fixed arguments, other logits each time.
TEST_F(CudaSampleTest, GreedyWithoutOptionsInsideAGraph) {
  constexpr int32_t kRows = 5;
  DeviceSampler sampler(kVocab, 151669, kRows, kRows);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t instance = nullptr;
  const LaunchContext context = sampler.context(true);
  KIPP_CUDA_OK(cudaStreamBeginCapture(context.stream, cudaStreamCaptureModeThreadLocal));
  KIPP_CUDA_OK(sample_greedy(sampler.args(kRows), context));
  KIPP_CUDA_OK(cudaStreamEndCapture(context.stream, &graph));
  KIPP_CUDA_OK(cudaGraphInstantiate(&instance, graph, 0));
  const SamplingParams greedy{.temperature = 0.0F};
  for (uint64_t round = 0; round < 6; ++round) {
    SampleCases cases(round, kVocab, 151669);
    for (uint32_t r = 0; r < kRows; ++r) {
      cases.add(greedy, cases.random_row(static_cast<uint32_t>(round) + r));
    }
    cases.logits()[static_cast<size_t>(kVocab) * 2 + round] = round == 3 ? kNan : 0.0F;
    sampler.upload(cases.logits());
    ASSERT_TRUE(sampler.prepare(cases.requests()).has_value());  // for read()
    KIPP_CUDA_OK(cudaGraphLaunch(instance, context.stream));
    const std::vector<RowResult> found = sampler.read(kRows);
    for (size_t r = 0; r < found.size(); ++r) {
      expect_row(found[r], cases, r);
    }
  }
  KIPP_CUDA_OK(cudaGraphExecDestroy(instance));
  KIPP_CUDA_OK(cudaGraphDestroy(graph));
}

TEST_F(CudaSampleTest, RefusesWhatItCannotRead) {
  DeviceSampler sampler(400, 390, 2, 2);
  SampleArgs args = sampler.args(1);
  args.logits += 1;
  EXPECT_EQ(sample_greedy(args, {}), cudaErrorInvalidValue);
  args = sampler.args(1);
  args.stride = 398;
  EXPECT_EQ(sample_greedy(args, {}), cudaErrorInvalidValue);
  args = sampler.args(1);
  args.num_tokens = 401;
  EXPECT_EQ(sample_greedy(args, {}), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace kipp::cuda
