// The oracle's threads split rows: every result has the same bits for any number of them.
#include <algorithm>
#include <cstring>
#include <functional>

#include "backend/oracle/arithmetic.h"
#include "backend/oracle/ops/operators.h"
#include "backend/oracle/threaded_operators.h"
#include "ops/operator_fixture.h"
#include "ops/stored_matrix.h"

namespace kipp::oracle {
namespace {

// Runs `operation` with 1 to 5 threads into fresh outputs and compares all of them, whole, with the plain operator's.
void expect_same_bits(size_t out_size, const std::function<void(float*)>& plain,
                      const std::function<void(ThreadedOperators&, float*)>& threaded) {
  std::vector<float> expected(out_size, poison());
  plain(expected.data());
  for (int32_t num_threads = 1; num_threads <= 5; ++num_threads) {
    ThreadedOperators ops(num_threads);
    std::vector<float> out(out_size, poison());
    threaded(ops, out.data());
    ASSERT_EQ(std::memcmp(out.data(), expected.data(), out_size * sizeof(float)), 0) << num_threads << " threads";
  }
}

TEST(ThreadedOperatorsTest, Embedding) {
  Draw draw(30);
  const auto table = draw.bf16(50 * 1024);
  std::vector<int32_t> ids(301);
  for (int32_t& id : ids) {
    id = draw.integer(0, 49);
  }
  const EmbeddingArgs args{table.data(), ids.data(), nullptr, 301, 1024};
  const auto with = [&](float* out) {
    auto copy = args;
    copy.out = out;
    return copy;
  };
  expect_same_bits(
      301 * 1024, [&](float* out) { embedding(with(out)); },
      [&](ThreadedOperators& ops, float* out) { ops.embedding(with(out)); });
}

TEST(ThreadedOperatorsTest, RmsNorm) {
  Draw draw(31);
  const auto x = draw.floats(997 * 130);
  const auto weight = draw.bf16(128);
  const RmsNormArgs args{x.data(), weight.data(), nullptr, 997, 128, 130, 131, 1e-6F};
  const auto with = [&](float* out) {
    auto copy = args;
    copy.out = out;
    return copy;
  };
  expect_same_bits(
      997 * 131, [&](float* out) { rms_norm(with(out)); },
      [&](ThreadedOperators& ops, float* out) { ops.rms_norm(with(out)); });
}

TEST(ThreadedOperatorsTest, Matmul) {
  Draw draw(32);
  for (const WeightType type : {WeightType::kBf16, WeightType::kQ8_0, WeightType::kAffine4Gs32}) {
    const int32_t columns = type == WeightType::kBf16 ? 517 : 544;
    for (const int32_t num_tokens : {1, 13}) {
      const StoredMatrix stored = draw_matrix(draw, type, 1003, columns);
      const auto x = draw.floats(static_cast<size_t>(num_tokens) * static_cast<size_t>(columns));
      const host::Matrix matrix{stored.data.data(), type, 1003, columns};
      expect_same_bits(
          static_cast<size_t>(num_tokens) * 1003,
          [&](float* out) { matmul({matrix.data, type, x.data(), out, num_tokens, 1003, columns, 1003}); },
          [&](ThreadedOperators& ops, float* out) {
            const host::Product product{&matrix, out};
            ops.matmul({&product, 1}, x.data(), num_tokens);
          });
    }
  }
}

// The definition (docs/numerics.md): the stored numbers in FP32, then the sum of any other dot product.
TEST(ThreadedOperatorsTest, QuantisedWeightsEnterTheSumAsTheFp32NumbersTheyStandFor) {
  Draw draw(36);
  for (const WeightType type : {WeightType::kQ8_0, WeightType::kAffine4Gs32}) {
    const StoredMatrix stored = draw_matrix(draw, type, 7, 1056);
    std::vector<float> wide(stored.weights.size());
    std::transform(stored.weights.begin(), stored.weights.end(), wide.begin(),
                   [](double weight) { return static_cast<float>(weight); });
    const auto x = draw.floats(1056);
    std::vector<float> out(7);
    matmul({stored.data.data(), type, x.data(), out.data(), 1, 7, 1056, 7});
    for (size_t r = 0; r < 7; ++r) {
      EXPECT_EQ(out[r], dot(wide.data() + r * 1056, x.data(), 1056)) << "type " << static_cast<int>(type);
    }
  }
}

TEST(ThreadedOperatorsTest, Rope) {
  Draw draw(33);
  const auto x = draw.floats(203 * 16 * 128);
  std::vector<int32_t> positions(203);
  for (int32_t& position : positions) {
    position = draw.integer(0, 262143);
  }
  const auto with = [&](float* out) {
    std::copy(x.begin(), x.end(), out);
    return RopeArgs{out, positions.data(), 203, 16, 128, 5e6F};
  };
  expect_same_bits(
      x.size(), [&](float* out) { rope(with(out)); }, [&](ThreadedOperators& ops, float* out) { ops.rope(with(out)); });
}

TEST(ThreadedOperatorsTest, KvWriteAndAttentionOfTwoSpans) {
  Draw draw(34);
  const auto k = draw.floats(150 * 8 * 128);
  const auto v = draw.floats(150 * 8 * 128);
  const auto q = draw.floats(51 * 16 * 128);
  PagedPool pools[] = {PagedPool(draw, 150, 8, 128, KvType::kBf16), PagedPool(draw, 40, 8, 128, KvType::kBf16)};
  const auto view = [&](size_t i) { return std::pair(pools[i].view(), pools[i].block_table().data()); };
  const KvWriteArgs writes[] = {{k.data(), v.data(), view(0).first, view(0).second, 0, 150, 8, 128},
                                {v.data(), k.data(), view(1).first, view(1).second, 0, 40, 8, 128}};
  const auto with = [&](float* out) {
    const ptrdiff_t row = 50 * 16 * 128;
    return std::vector<AttentionArgs>{{q.data(), view(0).first, view(0).second, out, 100, 50, 16, 8, 128},
                                      {q.data() + row, view(1).first, view(1).second, out + row, 39, 1, 16, 8, 128}};
  };
  expect_same_bits(
      q.size(),
      [&](float* out) {
        for (size_t i = 0; i < 2; ++i) {
          kv_write(writes[i]);
          attention(with(out)[i]);
        }
      },
      [&](ThreadedOperators& ops, float* out) {
        ops.kv_write(writes);
        ops.attention(with(out));
      });
}

TEST(ThreadedOperatorsTest, SwigluAndResidualAdd) {
  Draw draw(35);
  constexpr size_t kCount = 400003;
  const auto gate = draw.floats(kCount, 20.0F);
  const auto up = draw.floats(kCount);
  expect_same_bits(
      kCount,
      [&](float* out) {
        swiglu({gate.data(), up.data(), out, kCount});
        residual_add({out, up.data(), kCount});
      },
      [&](ThreadedOperators& ops, float* out) {
        ops.swiglu({gate.data(), up.data(), out, kCount});
        ops.residual_add({out, up.data(), kCount});
      });
}

TEST(ThreadedOperatorsTest, ReportCountsWhatRan) {
  ThreadedOperators ops(2);
  std::vector<float> x(4, 1.0F);
  ops.residual_add({x.data(), x.data(), 4});
  ops.residual_add({x.data(), x.data(), 4});
  ops.swiglu({x.data(), x.data(), x.data(), 4});
  const Report report = ops.report();
  EXPECT_EQ(report.backend, "oracle");
  const std::vector<std::pair<std::string, uint64_t>> expected = {
      {"attention_bf16", 0}, {"attention_f32", 0}, {"embedding", 0},
      {"kv_write_bf16", 0},  {"kv_write_f32", 0},  {"matmul_affine4_gs32", 0},
      {"matmul_bf16", 0},    {"matmul_q8_0", 0},   {"residual_add", 2},
      {"rms_norm", 0},       {"rope", 0},          {"stateless_attention", 0},
      {"swiglu", 1}};
  EXPECT_EQ(report.kernels, expected);  // also what did not run
}

}  // namespace
}  // namespace kipp::oracle
