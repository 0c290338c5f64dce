// K, V and attention of spans that have nothing in common but the step: no cut may change a bit of what each token
// gives alone.
#include <gtest/gtest.h>

#include <cstring>

#include "backend/cpu/cpu_operators.h"
#include "backend/cpu/isa.h"
#include "ops/operator_fixture.h"

namespace kipp::cpu {
namespace {

constexpr int32_t kQueryHeads = 6, kKvHeads = 2, kHeadDim = 40;
constexpr int32_t kQueryWidth = kQueryHeads * kHeadDim, kKvWidth = kKvHeads * kHeadDim;

struct RaggedSpan {
  int32_t first_position, num_tokens;
};

// A step of spans, each with K and V of all its positions in a pool of its own.
class RaggedStep {
 public:
  RaggedStep(std::span<const RaggedSpan> spans, KvType type) {
    Draw draw(40);
    for (const RaggedSpan& span : spans) {
      const int32_t end = span.first_position + span.num_tokens;
      const auto num_rows = static_cast<size_t>(end);
      parts_.push_back({span, PagedPool(draw, end, kKvHeads, kHeadDim, type), draw.floats(num_rows * kKvWidth),
                        draw.floats(num_rows * kKvWidth),
                        draw.floats(static_cast<size_t>(span.num_tokens) * kQueryWidth, 3.0F)});
      num_tokens_ += static_cast<size_t>(span.num_tokens);
    }
  }

  // Writes every position of every span at once, then attends.
  std::vector<float> run(CpuOperators& ops) {
    std::vector<float> out(num_tokens_ * kQueryWidth, poison());
    std::vector<KvWriteArgs> writes;
    std::vector<AttentionArgs> attentions;
    float* row = out.data();
    for (Part& part : parts_) {
      writes.push_back(write(part, 0, part.span.first_position + part.span.num_tokens));
      attentions.push_back(attention(part, 0, part.span.num_tokens, row));
      row += ptrdiff_t{part.span.num_tokens} * kQueryWidth;
    }
    ops.kv_write(writes);
    ops.attention(attentions);
    return out;
  }

  // The same position by position, token by token, on one thread.
  std::vector<float> run_alone(const OperatorTable& table) {
    std::vector<float> out(num_tokens_ * kQueryWidth, poison());
    float* row = out.data();
    for (Part& part : parts_) {
      for (int32_t position = 0; position < part.span.first_position + part.span.num_tokens; ++position) {
        table.kv_write(write(part, position, 1));
      }
      for (int32_t token = 0; token < part.span.num_tokens; ++token, row += kQueryWidth) {
        table.attention(attention(part, token, 1, row));
      }
    }
    return out;
  }

 private:
  struct Part {
    RaggedSpan span;
    PagedPool pool;
    std::vector<float> k, v, q;
  };

  static KvWriteArgs write(Part& part, int32_t position, int32_t count) {
    const ptrdiff_t offset = ptrdiff_t{position} * kKvWidth;
    return {part.k.data() + offset,
            part.v.data() + offset,
            part.pool.view(),
            part.pool.block_table().data(),
            position,
            count,
            kKvHeads,
            kHeadDim};
  }
  static AttentionArgs attention(Part& part, int32_t token, int32_t count, float* out) {
    return {part.q.data() + ptrdiff_t{token} * kQueryWidth,
            part.pool.view(),
            part.pool.block_table().data(),
            out,
            part.span.first_position + token,
            count,
            kQueryHeads,
            kKvHeads,
            kHeadDim};
  }

  std::vector<Part> parts_;
  size_t num_tokens_ = 0;
};

// Of each: whether segments are shared depends on what else is in the step and on the number of threads.
void expect_no_cut_to_matter(std::span<const RaggedSpan> spans, KvType type) {
  for (const std::string_view isa : supported_isas()) {
    const Kernels& kernels = **choose_kernels(isa);
    CpuOperators single(kernels, Precision::kDefault, 1);
    const std::vector<float> expected = RaggedStep(spans, type).run_alone(single.table());
    for (const int32_t num_threads : {1, 2, 5, 16}) {
      CpuOperators ops(kernels, Precision::kDefault, num_threads);
      RaggedStep step(spans, type);
      for (int32_t again = 0; again < 3; ++again) {  // over the scratch of the step before
        const std::vector<float> found = step.run(ops);
        ASSERT_EQ(std::memcmp(found.data(), expected.data(), found.size() * sizeof(float)), 0)
            << isa << ", " << num_threads << " threads";
      }
    }
  }
}

constexpr RaggedSpan kRagged[] = {{0, 1}, {2000, 1}, {31, 2}, {600, 40}, {511, 1}, {512, 1}, {0, 70}};

TEST(AttentionTasks, ALongContextAmongShortOnes) {
  expect_no_cut_to_matter(kRagged, KvType::kBf16);
}

TEST(AttentionTasks, WithoutRoundingOfKAndV) {
  expect_no_cut_to_matter(kRagged, KvType::kF32);
}

// Its first tiles end before position 1,536 and have one segment less than its last.
TEST(AttentionTasks, AChunkAloneOverTheBorderOfASegment) {
  constexpr RaggedSpan kChunk[] = {{1500, 60}};
  expect_no_cut_to_matter(kChunk, KvType::kBf16);
}

TEST(AttentionTasks, ManySingleTokens) {
  std::vector<RaggedSpan> spans;
  for (int32_t i = 0; i < 40; ++i) {
    spans.push_back({i * 37 % 1100, 1});
  }
  expect_no_cut_to_matter(spans, KvType::kBf16);
}

}  // namespace
}  // namespace kipp::cpu
