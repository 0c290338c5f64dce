// What the tests of attention share: sequences in a scrambled pool full of NaN, and a reference in double precision.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <span>

#include "backend/cuda/kernels/paged_kv.h"
#include "base/bf16.h"
#include "base/f16.h"
#include "cuda/device_array.h"

namespace kipp::cuda {

inline constexpr uint16_t kNanBits = 0x7FFF;  // in bf16 and in FP16
inline constexpr int32_t kTokenElements = kNumKvHeads * kHeadDim;

// Keys and values of one sequence in bf16, [position][kv_head][kHeadDim].
struct TestSequence {
  uint64_t seed;
  int32_t length;
  std::vector<uint16_t> keys, values;

  TestSequence(uint64_t sequence_seed, int32_t num_positions)
      : seed(sequence_seed), length(num_positions), keys(random(1)), values(random(2)) {}

  // The query heads of the token at `position`: the same whatever else a launch holds.
  std::vector<float> query(int32_t position, int32_t num_heads) const {
    return uniform_floats(seed * 1'000'003 + static_cast<uint64_t>(position), static_cast<size_t>(num_heads * kHeadDim),
                          6.0F);
  }

 private:
  std::vector<uint16_t> random(uint64_t stream) const {
    const std::vector<float> floats = uniform_floats(seed * 2 + stream, static_cast<size_t>(length * kTokenElements));
    std::vector<uint16_t> bits(floats.size());
    std::ranges::transform(floats, bits.begin(), f32_to_bf16);
    return bits;
  }
};

// The sequences on the device: blocks in an order drawn from `placement`, NaN wherever no position is, entries of the
// tables past a sequence's last block out of any pool.
class TestPool {
 public:
  TestPool(std::span<const TestSequence> sequences, uint64_t placement)
      : TestPool(sequences, order_of(sequences, placement)) {}

  PagedKv kv() const { return {pool_.get() + kGap, kBlockStride, tables_.get(), table_stride_, num_blocks_}; }
  // All of the memory, and where in it what kv() calls block b begins.
  std::vector<uint16_t> read() const { return pool_.read(); }
  static int64_t offset_of(int64_t block) { return kGap + block * kBlockStride; }
  int32_t block_of(int32_t sequence, int32_t index) const {
    return tables_.read()[static_cast<size_t>(sequence * table_stride_ + index)];
  }

 private:
  static constexpr int64_t kGap = 64;  // before, between and after blocks
  static constexpr int64_t kBlockStride = 2 * kKvValuesOffset + kGap;

  static uint16_t fp16_of(uint16_t bf16) { return std::bit_cast<uint16_t>(static_cast<_Float16>(bf16_to_f32(bf16))); }
  static int32_t blocks_of(const TestSequence& sequence) {
    return (sequence.length + kBlockPositions - 1) / kBlockPositions;
  }

  static std::vector<int32_t> order_of(std::span<const TestSequence> sequences, uint64_t placement) {
    int32_t total = 3;  // some blocks stay unused
    for (const TestSequence& sequence : sequences) {
      total += blocks_of(sequence);
    }
    std::vector<int32_t> order(static_cast<size_t>(total));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937_64(placement));
    return order;
  }

  TestPool(std::span<const TestSequence> sequences, const std::vector<int32_t>& order)
      : table_stride_(stride_of(sequences)),
        num_blocks_(static_cast<int32_t>(order.size())),
        pool_(fill_pool(sequences, order)),
        tables_(fill_tables(sequences, order, table_stride_)) {}

  static int32_t stride_of(std::span<const TestSequence> sequences) {
    int32_t stride = 0;
    for (const TestSequence& sequence : sequences) {
      stride = std::max(stride, blocks_of(sequence) + 1);
    }
    return stride;
  }

  static std::vector<uint16_t> fill_pool(std::span<const TestSequence> sequences, const std::vector<int32_t>& order) {
    std::vector<uint16_t> pool(order.size() * static_cast<size_t>(kBlockStride) + static_cast<size_t>(kGap), kNanBits);
    size_t used = 0;
    for (const TestSequence& sequence : sequences) {
      for (int32_t p = 0; p < sequence.length; ++p) {
        const int64_t block = order[used + static_cast<size_t>(p / kBlockPositions)];
        for (int32_t head = 0; head < kNumKvHeads; ++head) {
          const auto source = static_cast<ptrdiff_t>(p) * kTokenElements + head * kHeadDim;
          const auto target = static_cast<ptrdiff_t>(kGap + block * kBlockStride + head * kKvHeadElements +
                                                     p % kBlockPositions * kHeadDim);
          std::transform(sequence.keys.begin() + source, sequence.keys.begin() + source + kHeadDim,
                         pool.begin() + target, fp16_of);
          std::transform(sequence.values.begin() + source, sequence.values.begin() + source + kHeadDim,
                         pool.begin() + target + kKvValuesOffset, fp16_of);
        }
      }
      used += static_cast<size_t>(blocks_of(sequence));
    }
    return pool;
  }

  static std::vector<int32_t> fill_tables(std::span<const TestSequence> sequences, const std::vector<int32_t>& order,
                                          int32_t stride) {
    constexpr int32_t kOutside = 1 << 28;
    std::vector<int32_t> tables(sequences.size() * static_cast<size_t>(stride), kOutside);
    ptrdiff_t used = 0;
    for (size_t s = 0; s < sequences.size(); ++s) {
      const int32_t blocks = blocks_of(sequences[s]);
      std::copy_n(order.begin() + used, blocks, tables.begin() + static_cast<ptrdiff_t>(s) * stride);
      used += blocks;
    }
    return tables;
  }

  int32_t table_stride_, num_blocks_;
  DeviceArray<uint16_t> pool_;
  DeviceArray<int32_t> tables_;
};

// Attention of one token in double precision, [num_heads][kHeadDim].
inline std::vector<double> reference_attention(const TestSequence& sequence, int32_t position, int32_t num_heads) {
  const std::vector<float> query = sequence.query(position, num_heads);
  std::vector<double> out(query.size(), 0.0);
  std::vector<double> weights(static_cast<size_t>(position) + 1);
  for (int32_t h = 0; h < num_heads; ++h) {
    const int32_t kv_offset = h / (num_heads / kNumKvHeads) * kHeadDim;
    for (int32_t p = 0; p <= position; ++p) {
      double score = 0.0;
      for (int32_t d = 0; d < kHeadDim; ++d) {
        score += double{query[static_cast<size_t>(h * kHeadDim + d)]} *
                 double{bf16_to_f32(sequence.keys[static_cast<size_t>(p * kTokenElements + kv_offset + d)])};
      }
      weights[static_cast<size_t>(p)] = score / std::sqrt(double{kHeadDim});
    }
    const double max = *std::ranges::max_element(weights);
    double sum = 0.0;
    for (double& weight : weights) {
      weight = std::exp(weight - max);
      sum += weight;
    }
    for (int32_t p = 0; p <= position; ++p) {
      for (int32_t d = 0; d < kHeadDim; ++d) {
        out[static_cast<size_t>(h * kHeadDim + d)] +=
            weights[static_cast<size_t>(p)] / sum *
            double{bf16_to_f32(sequence.values[static_cast<size_t>(p * kTokenElements + kv_offset + d)])};
      }
    }
  }
  return out;
}

// Normalised mean squared error; NaN where a value is not finite.
inline double nmse(std::span<const double> found, std::span<const double> expected) {
  double error = 0.0;
  double norm = 0.0;
  for (size_t i = 0; i < expected.size(); ++i) {
    error += (found[i] - expected[i]) * (found[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  return error / norm;
}

}  // namespace kipp::cuda
