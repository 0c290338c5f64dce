// Matrix times vectors against double precision, and the rule that tokens do not know each other.
#include <cstring>

#include "ops/operator_fixture.h"

namespace kipp {
namespace {

class MatmulTest : public OperatorTest {
 protected:
  struct Problem {
    int32_t num_tokens, rows, columns;
    std::vector<uint16_t> weight;  // [rows][columns], poison behind
    std::vector<float> x;          // [num_tokens][columns], poison behind
  };

  // The last column is 64 times as large as the others, so that a lost tail cannot hide in the bound.
  static Problem draw_problem(Draw& draw, int32_t num_tokens, int32_t rows, int32_t columns) {
    Problem problem{num_tokens, rows, columns, {}, {}};
    problem.weight = draw.bf16(static_cast<size_t>(rows) * static_cast<size_t>(columns));
    problem.x = draw.floats(static_cast<size_t>(num_tokens) * static_cast<size_t>(columns));
    for (auto i = static_cast<size_t>(columns) - 1; i < problem.x.size(); i += static_cast<size_t>(columns)) {
      problem.x[i] *= 64.0F;
    }
    problem.weight = with_poisoned_tail(std::move(problem.weight));
    problem.x = with_poisoned_tail(std::move(problem.x));
    return problem;
  }

  std::vector<float> run(const Problem& problem, ptrdiff_t out_stride) {
    std::vector<float> out(static_cast<size_t>(out_stride) * static_cast<size_t>(problem.num_tokens), poison());
    ops().matmul({reinterpret_cast<const std::byte*>(problem.weight.data()), WeightType::kBf16, problem.x.data(),
                  out.data(), problem.num_tokens, problem.rows, problem.columns, out_stride});
    return out;
  }

  void check(Draw& draw, int32_t num_tokens, int32_t rows, int32_t columns) {
    const Problem problem = draw_problem(draw, num_tokens, rows, columns);
    const ptrdiff_t stride = rows + 3;
    const std::vector<float> out = run(problem, stride);
    // The activation's rounding, the product's, then the sum's. Three BF16 terms of an activation triple the sum.
    const double bound = activation_rounding(ops()) + gamma(4.0 + 3.0 * sum_roundings(ops(), columns));
    for (int32_t t = 0; t < num_tokens; ++t) {
      for (ptrdiff_t r = 0; r < stride; ++r) {
        const float found = out[static_cast<size_t>(t * stride + r)];
        if (r >= rows) {
          ASSERT_TRUE(is_poison(found)) << "wrote between rows";
          continue;
        }
        double sum = 0.0;
        double magnitude = 0.0;
        for (ptrdiff_t c = 0; c < columns; ++c) {
          const double term = static_cast<double>(bf16_to_f32(problem.weight[static_cast<size_t>(r * columns + c)])) *
                              static_cast<double>(problem.x[static_cast<size_t>(ptrdiff_t{t} * columns + c)]);
          sum += term;
          magnitude += std::abs(term);
        }
        ASSERT_LE(std::abs(static_cast<double>(found) - sum), bound * magnitude)
            << num_tokens << " tokens, " << rows << " × " << columns << ": token " << t << " row " << r;
      }
    }
  }
};

TEST_P(MatmulTest, MatchesDoublePrecisionAtEverySmallSize) {
  KIPP_REQUIRE_OPERATOR(matmul)
  Draw draw(4);
  for (int32_t size = 1; size <= 33; ++size) {
    check(draw, 1, 5, size);
    check(draw, 9, 3, size);
    check(draw, size, 2, 17);
    check(draw, 3, size, 19);
  }
}

TEST_P(MatmulTest, MatchesDoublePrecisionAtTheRegistrysWidths) {
  KIPP_REQUIRE_OPERATOR(matmul)
  Draw draw(5);
  for (const int32_t columns : kRegistryWidths) {
    check(draw, 1, 19, columns);
    check(draw, 10, 5, columns);
  }
}

TEST_P(MatmulTest, ATokensResultDoesNotDependOnItsMates) {
  KIPP_REQUIRE_OPERATOR(matmul)
  Draw draw(6);
  for (const int32_t columns : {31, 192, 1024, 2560}) {
    const Problem all = draw_problem(draw, 33, 21, columns);
    const std::vector<float> together = run(all, all.rows);
    for (int32_t t = 0; t < all.num_tokens; ++t) {
      Problem one = all;
      one.num_tokens = 1;
      one.x.erase(one.x.begin(), one.x.begin() + ptrdiff_t{t} * columns);
      const std::vector<float> alone = run(one, one.rows);
      ASSERT_EQ(std::memcmp(alone.data(), together.data() + ptrdiff_t{t} * all.rows, alone.size() * sizeof(float)), 0)
          << columns << " columns, token " << t;
    }
  }
}

KIPP_OPERATOR_TEST_SUITE(MatmulTest);

}  // namespace
}  // namespace kipp
