// Paged causal grouped-query attention against double precision, with poisoned memory and scrambled tables.
#include <algorithm>
#include <cstring>

#include "ops/operator_fixture.h"

namespace kipp {
namespace {

struct Shape {
  int32_t first_position, num_tokens, num_query_heads, num_kv_heads, head_dim;
  float magnitude = 1.0F;  // of Q: scores grow with it
  KvType type = KvType::kBf16;
};

struct Problem {
  Shape shape;
  PagedPool pool;        // K and V up to the last position; poison everywhere else
  std::vector<float> q;  // [num_tokens][num_query_heads][head_dim], poison behind
};

Problem draw_problem(Draw& draw, const Shape& shape) {
  const int32_t num_positions = shape.first_position + shape.num_tokens;
  Problem problem{shape, PagedPool(draw, num_positions, shape.num_kv_heads, shape.head_dim, shape.type), {}};
  for (int32_t part = 0; part < 2; ++part) {
    for (int32_t position = 0; position < num_positions; ++position) {
      for (int32_t head = 0; head < shape.num_kv_heads; ++head) {
        for (int32_t d = 0; d < shape.head_dim; ++d) {
          problem.pool.set(part, position, head, d, draw.uniform(-1.0F, 1.0F));
        }
      }
    }
  }
  const auto size = static_cast<size_t>(shape.num_tokens) * static_cast<size_t>(shape.num_query_heads * shape.head_dim);
  problem.q = with_poisoned_tail(draw.floats(size, shape.magnitude));
  return problem;
}

class AttentionTest : public OperatorTest {
 protected:
  std::vector<float> run(Problem& problem, int32_t first_token, int32_t num_tokens) {
    const Shape& shape = problem.shape;
    const auto row = static_cast<size_t>(shape.num_query_heads * shape.head_dim);
    std::vector<float> out(row * static_cast<size_t>(num_tokens) + 1, poison());
    ops().attention({problem.q.data() + row * static_cast<size_t>(first_token), problem.pool.view(),
                     problem.pool.block_table().data(), out.data(), shape.first_position + first_token, num_tokens,
                     shape.num_query_heads, shape.num_kv_heads, shape.head_dim});
    EXPECT_TRUE(is_poison(out.back()));
    out.pop_back();
    return out;
  }

  // One (token, head) in double. Error of a score: δ = γ(products and sum, scale)·max Σ|q·k|·scale, and rounding of the
  // difference to the largest. Softmax turns 2δ (numerator and denominator) into a relative error e^2δ - 1 of each
  // weight, to which exp, the sum of weights, the quotient, and the sum over values add their roundings.
  void check_row(const Problem& problem, int32_t token, int32_t head, std::span<const float> out) const {
    const Shape& shape = problem.shape;
    const int32_t count = shape.first_position + token + 1;
    const int32_t kv_head = head / (shape.num_query_heads / shape.num_kv_heads);
    const float* q = problem.q.data() + ptrdiff_t{token * shape.num_query_heads + head} * shape.head_dim;
    const double scale = 1.0 / std::sqrt(static_cast<double>(shape.head_dim));
    std::vector<double> scores(static_cast<size_t>(count));
    double largest_magnitude = 0.0;
    for (int32_t j = 0; j < count; ++j) {
      double magnitude = 0.0;
      for (int32_t d = 0; d < shape.head_dim; ++d) {
        const double term = static_cast<double>(q[d]) * static_cast<double>(problem.pool.get(0, j, kv_head, d)) * scale;
        scores[static_cast<size_t>(j)] += term;
        magnitude += std::abs(term);
      }
      largest_magnitude = std::max(largest_magnitude, magnitude);
    }
    const auto [low, high] = std::minmax_element(scores.begin(), scores.end());
    const double delta =
        gamma(sum_roundings(ops(), shape.head_dim) + 3.0) * largest_magnitude + kUnitRoundoff * (*high - *low);
    const double sum_depth = sum_roundings(ops(), count);
    const double relative = std::expm1(2.0 * delta) + gamma(2.0 * sum_depth + 8.0);
    double total = 0.0;
    const double maximum = *high;
    for (double& score : scores) {
      score = std::exp(score - maximum);
      total += score;
    }
    for (int32_t d = 0; d < shape.head_dim; ++d) {
      double expected = 0.0;
      double magnitude = 0.0;
      for (int32_t j = 0; j < count; ++j) {
        const double term =
            scores[static_cast<size_t>(j)] / total * static_cast<double>(problem.pool.get(1, j, kv_head, d));
        expected += term;
        magnitude += std::abs(term);
      }
      ASSERT_LE(std::abs(static_cast<double>(out[static_cast<size_t>(d)]) - expected), relative * magnitude + 1e-37)
          << "token " << token << " head " << head << " element " << d << " of " << count << " positions";
    }
  }

  void check(Draw& draw, const Shape& shape) {
    Problem problem = draw_problem(draw, shape);
    const std::vector<float> out = run(problem, 0, shape.num_tokens);
    const auto head_dim = static_cast<size_t>(shape.head_dim);
    for (int32_t row = 0; row < shape.num_tokens * shape.num_query_heads; ++row) {
      check_row(problem, row / shape.num_query_heads, row % shape.num_query_heads,
                std::span(out).subspan(static_cast<size_t>(row) * head_dim, head_dim));
    }
  }
};

TEST_P(AttentionTest, MatchesDoublePrecisionForEveryHeadCountOfTheRegistry) {
  KIPP_REQUIRE_OPERATOR(attention)
  Draw draw(15);
  for (const int32_t num_query_heads : {8, 16, 32, 40, 64}) {
    check(draw, {.first_position = 95,
                 .num_tokens = 3,
                 .num_query_heads = num_query_heads,
                 .num_kv_heads = 8,
                 .head_dim = 128});
  }
}

TEST_P(AttentionTest, MatchesDoublePrecisionAroundBlockBoundaries) {
  KIPP_REQUIRE_OPERATOR(attention)
  Draw draw(16);
  for (const int32_t first_position : {0, 1, 30, 31, 32, 33, 63, 64, 97}) {
    for (const int32_t num_tokens : {1, 2, 33}) {
      check(draw, {first_position, num_tokens, 4, 2, 128});
    }
  }
}

TEST_P(AttentionTest, WorksAtEverySmallSize) {
  KIPP_REQUIRE_OPERATOR(attention)
  Draw draw(17);
  for (int32_t size = 1; size <= 33; ++size) {
    const int32_t num_kv_heads = 1 + size % 3;
    check(draw, {size * 3 % 37, size, num_kv_heads * (1 + size % 5), num_kv_heads, size});
  }
}

TEST_P(AttentionTest, LargeScoresNeitherOverflowNorVanish) {
  KIPP_REQUIRE_OPERATOR(attention)
  Draw draw(18);
  check(draw, {.first_position = 100,
               .num_tokens = 2,
               .num_query_heads = 2,
               .num_kv_heads = 1,
               .head_dim = 128,
               .magnitude = 30.0F});
  constexpr int32_t kFirstPosition = 200;
  Problem problem = draw_problem(draw, {kFirstPosition, 1, 2, 1, 128, 1e6F});
  // A convex combination of values in [-1, 1]. Whatever the exponentials are, they are in the weights and in their sum
  // alike: what can leave the interval are the roundings of two sums, one quotient and one product (Higham, lemma 3.3).
  const double limit = 1.0 + gamma(2.0 * sum_roundings(ops(), kFirstPosition + 1) + 2.0);
  for (const float value : run(problem, 0, 1)) {
    ASSERT_LE(std::abs(static_cast<double>(value)), limit);  // false for NaN
  }
}

TEST_P(AttentionTest, LongContextsKeepTheirAccuracy) {
  KIPP_REQUIRE_OPERATOR(attention)
  Draw draw(19);
  check(draw, {.first_position = 4000, .num_tokens = 1, .num_query_heads = 2, .num_kv_heads = 1, .head_dim = 128});
}

TEST_P(AttentionTest, Fp32PoolsWork) {
  KIPP_REQUIRE_OPERATOR(attention)
  Draw draw(20);
  check(draw, {.first_position = 60,
               .num_tokens = 10,
               .num_query_heads = 4,
               .num_kv_heads = 2,
               .head_dim = 128,
               .type = KvType::kF32});
}

TEST_P(AttentionTest, ChunksOfASpanGiveTheSameBits) {
  KIPP_REQUIRE_OPERATOR(attention)
  Draw draw(21);
  const Shape shape{20, 90, 16, 8, 128};
  Problem problem = draw_problem(draw, shape);
  const std::vector<float> whole = run(problem, 0, shape.num_tokens);
  const auto row = static_cast<size_t>(shape.num_query_heads * shape.head_dim);
  for (const int32_t chunk : {1, 7, 32, 45}) {
    for (int32_t t = 0; t < shape.num_tokens; t += chunk) {
      const std::vector<float> part = run(problem, t, std::min(chunk, shape.num_tokens - t));
      ASSERT_EQ(std::memcmp(part.data(), whole.data() + static_cast<size_t>(t) * row, part.size() * sizeof(float)), 0)
          << "chunks of " << chunk << ", token " << t;
    }
  }
}

KIPP_OPERATOR_TEST_SUITE(AttentionTest);

}  // namespace
}  // namespace kipp
