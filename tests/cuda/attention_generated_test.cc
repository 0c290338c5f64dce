// Attention of generated rows against double precision, and that nothing but the row itself decides its bits.
#include "backend/cuda/kernels/attention_generated.h"

#include "backend/cuda/scales.h"
#include "cuda/attention_case.h"

namespace kipp::cuda {
namespace {

constexpr uint16_t kPoison = 0xABCD;
constexpr int32_t kHeadCounts[] = {16, 32, 40, 64};

// One row: the sequence's token at `position`; left out where it is negative.
struct Row {
  int32_t sequence, position;
};

struct Output {
  std::vector<uint16_t> high, low;  // with one poisoned row more than the launch has
  int32_t width;

  std::vector<uint16_t> bits(size_t row) const {
    std::vector<uint16_t> both;
    for (const std::vector<uint16_t>* half : {&high, &low}) {
      const auto begin = half->begin() + static_cast<ptrdiff_t>(row) * width;
      both.insert(both.end(), begin, begin + width);
    }
    return both;
  }
  std::vector<double> values(size_t row) const {
    std::vector<double> sums(static_cast<size_t>(width));
    for (size_t i = 0; i < sums.size(); ++i) {
      const size_t at = row * sums.size() + i;
      sums[i] = (double{f16_to_f32(high[at])} + double{f16_to_f32(low[at])}) / double{kAttentionScale};
    }
    return sums;
  }
};

// A workspace that launches of different shapes share, as those of a model do.
class Workspace {
 public:
  Workspace(int32_t max_rows, int32_t max_heads, int32_t max_context)
      : rows_(max_rows),
        bytes_(std::vector<uint8_t>(attention_generated_workspace_bytes(max_rows, max_heads, max_context), 0)) {}
  int32_t rows() const { return rows_; }
  void* get() const { return bytes_.get(); }

 private:
  int32_t rows_;
  DeviceArray<uint8_t> bytes_;
};

class CudaAttentionGeneratedTest : public CudaTest {
 protected:
  static Output attend(const std::vector<TestSequence>& sequences, const TestPool& pool, const std::vector<Row>& rows,
                       int32_t num_heads, int32_t max_context, const Workspace& workspace,
                       const std::vector<int32_t>& settled = {}) {
    std::vector<float> q;
    std::vector<int32_t> positions;
    std::vector<int32_t> of_sequences;
    for (const Row& row : rows) {
      const std::vector<float> query =
          sequences[static_cast<size_t>(row.sequence)].query(std::max(row.position, 0), num_heads);
      q.insert(q.end(), query.begin(), query.end());
      positions.push_back(row.position);
      of_sequences.push_back(row.sequence);
    }
    const DeviceArray<float> device_q(q);
    const DeviceArray<int32_t> device_positions(positions);
    const DeviceArray<int32_t> device_sequences(of_sequences);
    const DeviceArray<int32_t> device_settled(settled);
    const int32_t width = num_heads * kHeadDim;
    const std::vector<uint16_t> poison((rows.size() + 1) * static_cast<size_t>(width), kPoison);
    const DeviceArray<uint16_t> high(poison);
    const DeviceArray<uint16_t> low(poison);
    const AttentionGeneratedArgs args{.kv = pool.kv(),
                                      .q = device_q.get(),
                                      .positions = device_positions.get(),
                                      .sequences = device_sequences.get(),
                                      .settled = settled.empty() ? nullptr : device_settled.get(),
                                      .high = high.get(),
                                      .low = low.get(),
                                      .workspace = workspace.get(),
                                      .workspace_rows = workspace.rows(),
                                      .num_rows = static_cast<int32_t>(rows.size()),
                                      .num_query_heads = num_heads,
                                      .max_context = max_context};
    EXPECT_EQ(attention_generated(args, {}), cudaSuccess);
    return {high.read(), low.read(), width};
  }

  static void expect_accurate(const Output& output, size_t row, const TestSequence& sequence, int32_t position,
                              int32_t num_heads) {
    // Two FP16 terms of a weight leave 2^-22 of it, and K and V of this size lose at most 2^-25 in FP16: far below.
    EXPECT_LE(nmse(output.values(row), reference_attention(sequence, position, num_heads)), 1e-11)
        << num_heads << " heads, position " << position;
  }
};

TEST_F(CudaAttentionGeneratedTest, MatchesDoublePrecisionAtEveryKindOfLength) {
  std::vector<TestSequence> sequences;
  std::vector<Row> rows;
  for (const int32_t position : {0, 1, 31, 32, 33, 63, 64, 127, 128, 255, 256, 300, 1023, 2500}) {
    rows.push_back({static_cast<int32_t>(sequences.size()), position});
    sequences.emplace_back(static_cast<uint64_t>(position) + 1, position + 1);
  }
  const TestPool pool(sequences, 5);
  const Workspace workspace(20, 64, 4096);
  for (const int32_t num_heads : kHeadCounts) {
    const Output output = attend(sequences, pool, rows, num_heads, 2501, workspace);
    for (size_t r = 0; r < rows.size(); ++r) {
      expect_accurate(output, r, sequences[r], rows[r].position, num_heads);
    }
    for (const uint16_t bits : output.bits(rows.size())) {
      ASSERT_EQ(bits, kPoison) << "written past the last row";
    }
  }
}

// Positions that lie in the middle of what their sequence holds: what follows must not matter.
TEST_F(CudaAttentionGeneratedTest, NeverLooksAhead) {
  const std::vector<TestSequence> longer{TestSequence(3, 700)};
  TestSequence cut = longer[0];
  const TestPool whole(longer, 1);
  const Workspace workspace(1, 32, 1024);
  for (const int32_t position : {0, 15, 16, 40, 255, 256, 511, 699}) {
    cut.length = position + 1;
    const std::vector<TestSequence> shorter{cut};
    const TestPool exact(shorter, 2);
    EXPECT_EQ(attend(longer, whole, {{0, position}}, 32, 700, workspace).bits(0),
              attend(shorter, exact, {{0, position}}, 32, 700, workspace).bits(0))
        << "position " << position;
  }
}

TEST_F(CudaAttentionGeneratedTest, LongContextsUseEveryChunkSize) {
  const std::vector<TestSequence> sequences{TestSequence(7, 17'001)};
  const TestPool pool(sequences, 9);
  const Workspace workspace(6, 16, 40'960);
  const std::vector<Row> rows{{0, 4095}, {0, 4096}, {0, 5000}, {0, 16'383}, {0, 16'384}, {0, 17'000}};
  const Output output = attend(sequences, pool, rows, 16, 17'001, workspace);
  for (size_t r = 0; r < rows.size(); ++r) {
    expect_accurate(output, r, sequences[0], rows[r].position, 16);
    EXPECT_EQ(attend(sequences, pool, {rows[r]}, 16, 40'960, workspace).bits(0), output.bits(r));
  }
}

TEST_F(CudaAttentionGeneratedTest, BitsDependOnTheRowAlone) {
  const std::vector<TestSequence> sequences{TestSequence(1, 1500), TestSequence(2, 97), TestSequence(3, 640)};
  const TestPool pool(sequences, 1);
  const TestPool elsewhere(sequences, 2);
  const Workspace workspace(40, 64, 8192);
  std::vector<Row> rows;
  for (const int32_t position : {0, 17, 96, 300, 639, 1024, 1499}) {
    for (int32_t s = 0; s < 3; ++s) {
      if (position < sequences[static_cast<size_t>(s)].length) {
        rows.push_back({s, position});
      }
    }
  }
  for (const int32_t num_heads : kHeadCounts) {
    const Output together = attend(sequences, pool, rows, num_heads, 1500, workspace);
    EXPECT_EQ(attend(sequences, elsewhere, rows, num_heads, 8192, workspace).high, together.high);
    std::vector<Row> reversed(rows.rbegin(), rows.rend());
    const Output backwards = attend(sequences, pool, reversed, num_heads, 1600, workspace);
    for (size_t r = 0; r < rows.size(); ++r) {
      EXPECT_EQ(backwards.bits(rows.size() - 1 - r), together.bits(r)) << "row " << r;
      EXPECT_EQ(attend(sequences, pool, {rows[r]}, num_heads, rows[r].position + 1, workspace).bits(0),
                together.bits(r))
          << "row " << r << " alone";
    }
  }
}

// Overlap itself is for benchmarks and the model; here, that every tile is fetched once, early or late.
TEST_F(CudaAttentionGeneratedTest, WhatIsSettledDoesNotMatter) {
  const std::vector<TestSequence> sequences{TestSequence(4, 1300)};
  const TestPool pool(sequences, 3);
  const Workspace workspace(8, 32, 2048);
  const std::vector<Row> rows{{0, 1299}, {0, 1298}, {0, 300}, {0, 255}, {0, 64}, {0, 1}, {0, 0}, {0, -1}};
  const Output late = attend(sequences, pool, rows, 32, 1300, workspace);
  for (const std::vector<int32_t>& settled :
       {std::vector<int32_t>{1299, 1298, 300, 255, 64, 1, 0, 0}, std::vector<int32_t>{1300, 1200, 30, 17, 63, 0, 1, 0},
        std::vector<int32_t>(8, 0)}) {
    const Output early = attend(sequences, pool, rows, 32, 1300, workspace, settled);
    EXPECT_EQ(early.high, late.high);
    EXPECT_EQ(early.low, late.low);
  }
}

TEST_F(CudaAttentionGeneratedTest, LeavesOutRowsOfNegativePosition) {
  const std::vector<TestSequence> sequences{TestSequence(1, 600)};
  const TestPool pool(sequences, 1);
  const Workspace workspace(4, 32, 1024);
  const Output output = attend(sequences, pool, {{0, 599}, {0, -1}, {0, 20}}, 32, 1024, workspace);
  EXPECT_EQ(output.bits(1), std::vector<uint16_t>(static_cast<size_t>(2 * output.width), kPoison));
  expect_accurate(output, 0, sequences[0], 599, 32);
  expect_accurate(output, 2, sequences[0], 20, 32);
}

// Many launches without a pause between them: whichever block finishes last merges, and every launch finds the counters
// as the first one did.
TEST_F(CudaAttentionGeneratedTest, RepeatsItselfOverOneWorkspace) {
  const std::vector<TestSequence> sequences{TestSequence(1, 4000), TestSequence(2, 2222)};
  const TestPool pool(sequences, 1);
  const Workspace workspace(16, 64, 4096);
  std::vector<Row> rows;
  for (int32_t i = 0; i < 16; ++i) {
    rows.push_back({i % 2, 2221 - i * 100});
  }
  const Output first = attend(sequences, pool, rows, 40, 4000, workspace);
  for (int32_t i = 0; i < 50; ++i) {
    const Output again = attend(sequences, pool, rows, 40, 4000, workspace);
    ASSERT_EQ(again.high, first.high) << "launch " << i;
    ASSERT_EQ(again.low, first.low) << "launch " << i;
    const Output other = attend(sequences, pool, {{0, 3999}}, 16, 4000, workspace);
    if (i == 0) {
      expect_accurate(other, 0, sequences[0], 3999, 16);
    }
  }
}

TEST_F(CudaAttentionGeneratedTest, RefusesShapesOfNoCheckpoint) {
  AttentionGeneratedArgs args{};
  args.num_rows = args.workspace_rows = 1;
  args.max_context = 128;
  args.num_query_heads = 24;
  EXPECT_EQ(attention_generated(args, {}), cudaErrorInvalidValue);
  args.num_query_heads = 32;
  args.num_rows = 2;
  EXPECT_EQ(attention_generated(args, {}), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace kipp::cuda
