// Attention of prompt rows against double precision, and that neither cuts nor mates decide a row's bits.
#include "backend/cuda/kernels/attention_prompt.h"

#include "backend/cuda/kernels/attention_prompt_variants.h"
#include "backend/cuda/scales.h"
#include "cuda/attention_case.h"

namespace kipp::cuda {
namespace {

constexpr uint16_t kPoison = 0xABCD;
constexpr int32_t kHeadCounts[] = {16, 32, 40, 64};

struct Span {
  int32_t sequence, first_position, num_tokens;
};

// The spans' rows one after the other, then a poisoned one.
struct Output {
  std::vector<uint16_t> high;
  int32_t width;

  std::vector<uint16_t> bits(int32_t row, int32_t num_rows = 1) const {
    const auto begin = high.begin() + ptrdiff_t{row} * width;
    return {begin, begin + ptrdiff_t{num_rows} * width};
  }
  std::vector<double> values(int32_t row) const {
    std::vector<double> widened;
    for (const uint16_t half : bits(row)) {
      widened.push_back(double{f16_to_f32(half)} / double{kAttentionScale});
    }
    return widened;
  }
};

struct Variant {
  const char* name;
  cudaError_t (*launch)(const AttentionPromptArgs&, const LaunchContext&);
};

class CudaAttentionPromptTest : public CudaTest, public testing::WithParamInterface<Variant> {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (!IsSkipped() && GetParam().launch == attention_prompt_sm90 && !has_attention_prompt_sm90()) {
      GTEST_SKIP() << "not a Hopper device, or not built for one";
    }
  }

  // Tiles of up to `tile_tokens` tokens, in an order of no meaning.
  static Output attend(const std::vector<TestSequence>& sequences, const TestPool& pool, const std::vector<Span>& spans,
                       int32_t num_heads, int32_t tile_tokens) {
    std::vector<float> q;
    std::vector<PromptTile> tiles;
    int32_t num_rows = 0;
    for (const Span& span : spans) {
      for (int32_t t = 0; t < span.num_tokens; t += tile_tokens) {
        tiles.push_back(
            {num_rows + t, span.first_position + t, std::min(tile_tokens, span.num_tokens - t), span.sequence});
      }
      for (int32_t t = 0; t < span.num_tokens; ++t) {
        const std::vector<float> query =
            sequences[static_cast<size_t>(span.sequence)].query(span.first_position + t, num_heads);
        q.insert(q.end(), query.begin(), query.end());
      }
      num_rows += span.num_tokens;
    }
    std::shuffle(tiles.begin(), tiles.end(), std::mt19937_64(3));
    const DeviceArray<float> device_q(q);
    const DeviceArray<PromptTile> device_tiles(tiles);
    const int32_t width = num_heads * kHeadDim;
    const DeviceArray<uint16_t> high(std::vector<uint16_t>(static_cast<size_t>((num_rows + 1) * width), kPoison));
    const AttentionPromptArgs args{.kv = pool.kv(),
                                   .q = device_q.get(),
                                   .tiles = device_tiles.get(),
                                   .high = high.get(),
                                   .num_tiles = static_cast<int32_t>(tiles.size()),
                                   .num_query_heads = num_heads};
    EXPECT_EQ(GetParam().launch(args, {}), cudaSuccess);
    Output output{high.read(), width};
    EXPECT_EQ(output.bits(num_rows), std::vector<uint16_t>(static_cast<size_t>(width), kPoison));
    return output;
  }

  static void expect_accurate(const Output& output, int32_t row, const TestSequence& sequence, int32_t position,
                              int32_t num_heads) {
    // Rounding to FP16 is off by 2e-4 of a value on average: scores here (standard deviation 2) by 4e-4, weights and
    // the output by 2e-4 each. The sum of their squares is 2.4e-7; four times that is allowed.
    EXPECT_LE(nmse(output.values(row), reference_attention(sequence, position, num_heads)), 1e-6)
        << num_heads << " heads, position " << position;
  }
};

TEST_P(CudaAttentionPromptTest, MatchesDoublePrecisionOnRaggedSpans) {
  const std::vector<TestSequence> sequences{TestSequence(1, 300), TestSequence(2, 1), TestSequence(3, 1100),
                                            TestSequence(4, 129), TestSequence(5, 2500)};
  const TestPool pool(sequences, 7);
  const std::vector<Span> spans{{0, 0, 300}, {1, 0, 1}, {2, 1000, 100}, {3, 31, 98}, {4, 2499, 1}, {2, 63, 3}};
  for (const int32_t num_heads : kHeadCounts) {
    const Output output = attend(sequences, pool, spans, num_heads, prompt_tile_tokens(num_heads));
    int32_t row = 0;
    for (const Span& span : spans) {
      for (int32_t t = 0; t < span.num_tokens; t += t % 37 == 0 ? 1 : 4) {
        expect_accurate(output, row + t, sequences[static_cast<size_t>(span.sequence)], span.first_position + t,
                        num_heads);
      }
      row += span.num_tokens;
    }
  }
}

TEST_P(CudaAttentionPromptTest, NeverLooksAhead) {
  const std::vector<TestSequence> longer{TestSequence(3, 400)};
  const TestPool whole(longer, 1);
  TestSequence cut = longer[0];
  for (const int32_t length : {1, 31, 32, 33, 64, 65, 127, 128, 300}) {
    cut.length = length;
    const std::vector<TestSequence> shorter{cut};
    const TestPool exact(shorter, 2);
    EXPECT_EQ(attend(longer, whole, {{0, 0, 400}}, 32, 32).bits(0, length),
              attend(shorter, exact, {{0, 0, length}}, 32, 32).bits(0, length))
        << "length " << length;
  }
}

TEST_P(CudaAttentionPromptTest, NeitherCutsNorMatesNorPlacementMatter) {
  const std::vector<TestSequence> sequences{TestSequence(1, 700), TestSequence(2, 333), TestSequence(3, 64)};
  const TestPool pool(sequences, 1);
  const TestPool elsewhere(sequences, 2);
  for (const int32_t num_heads : kHeadCounts) {
    const int32_t tokens = prompt_tile_tokens(num_heads);
    const Output whole = attend(sequences, pool, {{0, 0, 700}}, num_heads, tokens);
    for (const int32_t tile_tokens : {1, 3, tokens - 1}) {
      EXPECT_EQ(attend(sequences, pool, {{0, 0, 700}}, num_heads, tile_tokens).high, whole.high);
    }
    const std::vector<Span> mixed{{1, 0, 333}, {0, 129, 272}, {2, 5, 50}, {0, 0, 129}, {0, 401, 1}, {0, 402, 298}};
    const Output cut = attend(sequences, elsewhere, mixed, num_heads, tokens);
    int32_t row = 0;
    for (const Span& span : mixed) {
      if (span.sequence == 0) {
        EXPECT_EQ(cut.bits(row, span.num_tokens), whole.bits(span.first_position, span.num_tokens))
            << num_heads << " heads, from position " << span.first_position;
      }
      row += span.num_tokens;
    }
  }
}

TEST_P(CudaAttentionPromptTest, RefusesShapesOfNoCheckpoint) {
  AttentionPromptArgs args{};
  args.num_tiles = 1;
  args.num_query_heads = 24;
  EXPECT_EQ(GetParam().launch(args, {}), cudaErrorInvalidValue);
}

INSTANTIATE_TEST_SUITE_P(Kernels, CudaAttentionPromptTest,
                         testing::Values(Variant{"sm80", attention_prompt_sm80},
                                         Variant{"sm90", attention_prompt_sm90}),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace kipp::cuda
