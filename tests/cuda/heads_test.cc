// What lies between a layer's projections and its attention: against double precision, and attention that does it
// itself against the two kernels.
#include <algorithm>
#include <cmath>

#include "backend/cuda/kernels/attention_generated.h"
#include "backend/cuda/kernels/query_key_value.h"
#include "base/bf16.h"
#include "base/f16.h"
#include "cuda/attention_case.h"

namespace kipp::cuda {
namespace {

constexpr float kEpsilon = 1e-6F;
constexpr int32_t kPairs = kHeadDim / 2;

float frequency(int32_t pair) {
  return static_cast<float>(std::pow(1e6, -double(pair) / kPairs));
}

// A step of one row for each of a pool's sequences, at the sequence's last position.
struct Step {
  int32_t num_heads, num_partials;
  std::vector<int32_t> positions, sequences;
  std::vector<float> projected;
  std::vector<uint16_t> query_norm, key_norm;

  Step(uint64_t seed, const std::vector<TestSequence>& all, int32_t heads, int32_t partials)
      : num_heads(heads), num_partials(partials), query_norm(norm(seed)), key_norm(norm(seed + 1)) {
    for (size_t s = 0; s < all.size(); ++s) {
      positions.push_back(all[s].length - 1);
      sequences.push_back(static_cast<int32_t>(s));
    }
    projected = uniform_floats(seed + 2, static_cast<size_t>(partials * num_rows() * width()), 3.0F);
  }
  int32_t num_rows() const { return static_cast<int32_t>(positions.size()); }
  int32_t width() const { return (num_heads + 2 * kNumKvHeads) * kHeadDim; }

  double projected_at(int32_t row, int32_t column) const {
    float sum = 0.0F;
    for (int32_t p = 0; p < num_partials; ++p) {
      const float next = projected[static_cast<size_t>((p * num_rows() + row) * width() + column)];
      sum = p == 0 ? next : sum + next;
    }
    return double{sum};
  }
  // Head `head` of what was projected; q and k normalised and rotated.
  std::vector<double> head(int32_t row, int32_t head) const {
    std::vector<double> x;
    for (int32_t i = 0; i < kHeadDim; ++i) x.push_back(projected_at(row, head * kHeadDim + i));
    if (head >= num_heads + kNumKvHeads) return x;
    double squares = 0.0;
    for (const double value : x) squares += value * value;
    const double factor = 1.0 / std::sqrt(squares / kHeadDim + double{kEpsilon});
    const std::vector<uint16_t>& weights = head < num_heads ? query_norm : key_norm;
    for (size_t i = 0; i < x.size(); ++i) x[i] *= factor * double{bf16_to_f32(weights[i])};
    std::vector<double> turned(x.size());
    for (int32_t i = 0; i < kPairs; ++i) {
      const auto low = static_cast<size_t>(i);
      const size_t high = low + kPairs;
      const double angle = double{static_cast<float>(positions[static_cast<size_t>(row)]) * frequency(i)};
      turned[low] = x[low] * std::cos(angle) - x[high] * std::sin(angle);
      turned[high] = x[high] * std::cos(angle) + x[low] * std::sin(angle);
    }
    return turned;
  }

 private:
  static std::vector<uint16_t> norm(uint64_t seed) {
    const std::vector<float> values = uniform_floats(seed, kHeadDim, 2.0F);
    std::vector<uint16_t> bits(values.size());
    std::ranges::transform(values, bits.begin(), f32_to_bf16);
    return bits;
  }
};

// The step on the device, over a pool of its own.
class DeviceStep {
 public:
  DeviceStep(const Step& step, const std::vector<TestSequence>& sequences)
      : step_(step),
        pool_(sequences, 5),
        projected_(step.projected),
        query_norm_(step.query_norm),
        key_norm_(step.key_norm),
        positions_(step.positions),
        sequences_(step.sequences),
        angles_(static_cast<size_t>(step.num_rows() * kPairs)),
        q_(static_cast<size_t>(step.num_rows() * step.num_heads * kHeadDim)),
        high_(static_cast<size_t>(step.num_rows() * step.num_heads * kHeadDim)),
        low_(static_cast<size_t>(step.num_rows() * step.num_heads * kHeadDim)),
        workspace_(std::vector<uint8_t>(
            attention_generated_workspace_bytes(step.num_rows(), step.num_heads, kMaxContext), 0)) {
    std::vector<float> frequencies;
    for (int32_t i = 0; i < kPairs; ++i) frequencies.push_back(frequency(i));
    const DeviceArray<float> device(frequencies);
    EXPECT_EQ(rotary_angles({positions_.get(), device.get(), angles_.get(), step.num_rows()}, {}), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }

  void query_key_value() const {
    const PagedKv kv = pool_.kv();
    EXPECT_EQ(cuda::query_key_value({.heads = heads(),
                                     .places = {positions_.get(), sequences_.get(), kv.block_tables, kv.table_stride},
                                     .kv = {const_cast<uint16_t*>(kv.pool), kv.block_stride},
                                     .q = q_.get(),
                                     .num_rows = step_.num_rows(),
                                     .num_query_heads = step_.num_heads},
                                    {}),
              cudaSuccess);
  }
  void attend(bool makes_heads, const std::vector<int32_t>& settled) const {
    const DeviceArray<int32_t> device_settled(settled);
    EXPECT_EQ(attention_generated({.kv = pool_.kv(),
                                   .q = makes_heads ? nullptr : q_.get(),
                                   .positions = positions_.get(),
                                   .sequences = sequences_.get(),
                                   .settled = settled.empty() ? nullptr : device_settled.get(),
                                   .high = high_.get(),
                                   .low = low_.get(),
                                   .workspace = workspace_.get(),
                                   .workspace_rows = step_.num_rows(),
                                   .num_rows = step_.num_rows(),
                                   .num_query_heads = step_.num_heads,
                                   .max_context = kMaxContext,
                                   .heads = makes_heads ? heads() : ProjectedHeads{},
                                   .new_kv = makes_heads ? const_cast<uint16_t*>(pool_.kv().pool) : nullptr},
                                  {}),
              cudaSuccess);
  }
  std::vector<float> q() const { return q_.read(); }
  std::vector<uint16_t> pool() const { return pool_.read(); }
  // K or V of kv head `head` of a row's position, in `bits` of the whole pool.
  const uint16_t* in_pool(const std::vector<uint16_t>& bits, int32_t row, int32_t head, bool value) const {
    const int32_t position = step_.positions[static_cast<size_t>(row)];
    const int64_t block = pool_.block_of(row, position / kBlockPositions);
    return bits.data() + TestPool::offset_of(block) + (value ? kKvValuesOffset : 0) + head * kKvHeadElements +
           position % kBlockPositions * kHeadDim;
  }
  std::vector<uint16_t> attended() const {
    std::vector<uint16_t> both = high_.read();
    const std::vector<uint16_t> low = low_.read();
    both.insert(both.end(), low.begin(), low.end());
    return both;
  }

 private:
  static constexpr int32_t kMaxContext = 8192;
  ProjectedHeads heads() const {
    return {.sums = projected_.get(),
            .partial_stride = int64_t{step_.num_rows()} * step_.width(),
            .num_partials = step_.num_partials,
            .width = step_.width(),
            .query_norm = query_norm_.get(),
            .key_norm = key_norm_.get(),
            .epsilon = kEpsilon,
            .angles = angles_.get()};
  }

  const Step& step_;
  TestPool pool_;
  DeviceArray<float> projected_;
  DeviceArray<uint16_t> query_norm_, key_norm_;
  DeviceArray<int32_t> positions_, sequences_;
  DeviceArray<float2> angles_;
  DeviceArray<float> q_;
  DeviceArray<uint16_t> high_, low_;
  DeviceArray<uint8_t> workspace_;
};

class CudaHeadsTest : public CudaTest {
 protected:
  // Last positions at the ends of tiles, blocks and chunks, alone in one, and in the middle.
  static std::vector<TestSequence> sequences() {
    std::vector<TestSequence> all;
    for (const int32_t length : {1, 16, 17, 32, 33, 100, 256, 257, 700, 4097}) {
      all.emplace_back(static_cast<uint64_t>(length), length);
    }
    return all;
  }
};

TEST_F(CudaHeadsTest, QueriesKeysAndValuesMatchDoublePrecision) {
  const std::vector<TestSequence> all = sequences();
  for (const int32_t num_heads : {16, 32, 40, 64}) {
    for (const int32_t partials : {1, 4}) {
      const Step step(static_cast<uint64_t>(num_heads), all, num_heads, partials);
      const DeviceStep device(step, all);
      device.query_key_value();
      const std::vector<float> q = device.q();
      const std::vector<uint16_t> pool = device.pool();
      for (int32_t row = 0; row < step.num_rows(); ++row) {
        for (int32_t head = 0; head < num_heads; ++head) {
          const std::vector<double> expected = step.head(row, head);
          for (size_t i = 0; i < expected.size(); ++i) {
            const float found = q[static_cast<size_t>((row * num_heads + head) * kHeadDim) + i];
            ASSERT_NEAR(found, expected[i], 2e-5) << "row " << row << ", head " << head << ", element " << i;
          }
        }
        for (int32_t head = 0; head < 2 * kNumKvHeads; ++head) {
          const std::vector<double> expected = step.head(row, num_heads + head);
          const uint16_t* found = device.in_pool(pool, row, head % kNumKvHeads, head >= kNumKvHeads);
          for (size_t i = 0; i < expected.size(); ++i) {
            const float value = f16_to_f32(found[i]);
            ASSERT_NEAR(value, expected[i], 0x1p-8 * std::abs(expected[i]) + 2e-5)
                << "row " << row << ", kv head " << head << ", element " << i;
            if (std::abs(value) < 0x1p-14F) continue;
            ASSERT_EQ(bf16_to_f32(f32_to_bf16(value)), value) << "was not rounded to bf16 before";
          }
        }
      }
    }
  }
}

TEST_F(CudaHeadsTest, AttentionFromTheProjectionHasTheBitsOfBothKernels) {
  const std::vector<TestSequence> all = sequences();
  for (const int32_t num_heads : {16, 32, 40, 64}) {
    for (const int32_t partials : {1, 4}) {
      const Step step(static_cast<uint64_t>(num_heads + 1), all, num_heads, partials);
      const DeviceStep two(step, all);
      two.query_key_value();
      two.attend(false, {});
      std::vector<int32_t> settled = step.positions;
      for (const bool early : {false, true}) {
        const DeviceStep one(step, all);
        one.attend(true, early ? settled : std::vector<int32_t>{});
        ASSERT_EQ(one.pool(), two.pool()) << num_heads << " heads, " << early;
        ASSERT_EQ(one.attended(), two.attended()) << num_heads << " heads, " << early;
      }
    }
  }
}

}  // namespace
}  // namespace kipp::cuda
