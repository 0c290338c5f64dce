// What the operator tests share: every backend's operator table in turn, seeded draws, poisoned memory, roundoff.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/bf16.h"
#include "model/operators.h"

namespace kipp {

// The widths of the registry's matrices: hidden, query_width and ffn of every entry, and kv_width.
inline constexpr int32_t kRegistryWidths[] = {192,  512,  1024, 2048, 2560,  3072,  4096,
                                              5120, 6144, 8192, 9728, 12288, 17408, 25600};

// Every backend of this build, cpu once for each instruction set of this machine and precision: "oracle", "cpu/avx2",
// "cpu/avx2/high", …
std::vector<std::string> tested_backends();
// The backend of such a name, on one thread.
Result<std::unique_ptr<Backend>> make_tested_backend(const std::string& name);

// Runs over tested_backends(). A backend without the plain form of an operator skips its test.
class OperatorTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override;
  const OperatorTable& ops() const { return backend_->operators(); }

 private:
  std::unique_ptr<Backend> backend_;
};

#define KIPP_REQUIRE_OPERATOR(name)                            \
  if (ops().name == nullptr) {                                 \
    GTEST_SKIP() << ops().backend << " has no unfused " #name; \
  }

#define KIPP_OPERATOR_TEST_SUITE(suite)                                           \
  INSTANTIATE_TEST_SUITE_P(Backends, suite, testing::ValuesIn(tested_backends()), \
                           [](const auto& tested) { return test_name(tested.param); })

// The name with nothing but letters, digits and underscores, as GoogleTest wants it.
std::string test_name(std::string name);

class Draw {
 public:
  explicit Draw(uint64_t seed) : engine_(seed) {}
  float uniform(float low, float high) { return std::uniform_real_distribution<float>(low, high)(engine_); }
  int32_t integer(int32_t low, int32_t high) { return std::uniform_int_distribution<int32_t>(low, high)(engine_); }
  std::vector<float> floats(size_t count, float magnitude = 1.0F);
  std::vector<uint16_t> bf16(size_t count, float magnitude = 1.0F);
  std::vector<int32_t> permutation(int32_t count);

 private:
  std::mt19937_64 engine_;
};

// NaN that a computation cannot make: found again bit for bit where nothing may be written, and poison where read.
inline constexpr uint32_t kPoisonF32 = 0x7FC0DEAD;
inline constexpr uint16_t kPoisonBf16 = 0x7FDE;
inline float poison() {
  return std::bit_cast<float>(kPoisonF32);
}
inline bool is_poison(float value) {
  return std::bit_cast<uint32_t>(value) == kPoisonF32;
}

// Appends poison, so that a read past the end shows.
template <typename T>
std::vector<T> with_poisoned_tail(std::vector<T> values, size_t count = 64) {
  values.resize(values.size() + count,
                std::is_same_v<T, float> ? static_cast<T>(poison()) : static_cast<T>(kPoisonBf16));
  return values;
}

inline constexpr double kUnitRoundoff = 0x1p-24;

// gamma_k = k·u / (1 - k·u): the relative error of k roundings in a row (Higham 2002, section 3.1).
inline double gamma(double roundings) {
  return roundings * kUnitRoundoff / (1.0 - roundings * kUnitRoundoff);
}

// Most roundings that one of n terms goes through in a sum: the longest lane and the tree for the oracle, where the
// first addition to an empty lane is exact; any order at all for a backend that does not say better.
double sum_roundings(const OperatorTable& table, int64_t n);
// The largest relative error of an activation that a product of BF16 weights starts from: 2^-16 where they are
// sums of two BF16 numbers (nearest of 8 bits each), 0 where they are FP32.
double activation_rounding(const OperatorTable& table);

// One layer of a paged pool inside a pool of `num_layers`, all of it poisoned, under a scrambled block table.
class PagedPool {
 public:
  PagedPool(Draw& draw, int32_t num_positions, int32_t num_kv_heads, int32_t head_dim, KvType type);

  KvLayerView view();
  const std::vector<int32_t>& block_table() const { return block_table_; }
  // Element of the layer under test through the table; part 0 is K, 1 is V.
  float get(int32_t part, int32_t position, int32_t head, int32_t d) const;
  void set(int32_t part, int32_t position, int32_t head, int32_t d, float value);
  size_t num_poisoned() const;  // elements of the whole pool that still hold the poison
  size_t num_elements() const { return bf16_.size() + f32_.size(); }

 private:
  size_t index(int32_t part, int32_t position, int32_t head, int32_t d) const;

  int32_t num_kv_heads_, head_dim_;
  KvType type_;
  std::vector<int32_t> block_table_;
  std::vector<uint16_t> bf16_;  // one of the two is in use
  std::vector<float> f32_;
};

}  // namespace kipp
