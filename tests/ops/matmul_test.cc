// Matrix times vectors against double precision, in every type that a matrix is stored as, and the rule that tokens do
// not know each other.
#include <cstring>

#include "ops/operator_fixture.h"
#include "ops/stored_matrix.h"

namespace kipp {
namespace {

constexpr WeightType kQuantisedTypes[] = {WeightType::kQ8_0, WeightType::kAffine4Gs32};
constexpr WeightType kAllTypes[] = {WeightType::kBf16, WeightType::kQ8_0, WeightType::kAffine4Gs32};

class MatmulTest : public OperatorTest {
 protected:
  struct Problem {
    StoredMatrix matrix;
    int32_t num_tokens;
    std::vector<float> x;  // [num_tokens][columns], poison behind
  };

  // The last column is 64 times as large as the others, so that a lost tail cannot hide in the bound.
  static Problem draw_problem(Draw& draw, WeightType type, int32_t num_tokens, int32_t rows, int32_t columns) {
    Problem problem{draw_matrix(draw, type, rows, columns), num_tokens, {}};
    problem.x = draw.floats(static_cast<size_t>(num_tokens) * static_cast<size_t>(columns));
    for (auto i = static_cast<size_t>(columns) - 1; i < problem.x.size(); i += static_cast<size_t>(columns)) {
      problem.x[i] *= 64.0F;
    }
    problem.x = with_poisoned_tail(std::move(problem.x));
    return problem;
  }

  std::vector<float> run(const Problem& problem, ptrdiff_t out_stride) {
    const StoredMatrix& matrix = problem.matrix;
    std::vector<float> out(static_cast<size_t>(out_stride) * static_cast<size_t>(problem.num_tokens), poison());
    ops().matmul({matrix.data.data(), matrix.type, problem.x.data(), out.data(), problem.num_tokens, matrix.rows,
                  matrix.columns, out_stride});
    return out;
  }

  // Roundings of one term on its way: its product and the sum; for quantised weights also scale and bias, which a
  // backend applies to each weight or to sums of quants and of x.
  double bound_of(const StoredMatrix& matrix) const {
    const double widening = matrix.type == WeightType::kBf16 ? 0.0 : 2.0;
    // Where an activation is a sum of two BF16 terms, it doubles the sum.
    return activation_rounding(ops()) + gamma(4.0 + widening + 2.0 * sum_roundings(ops(), matrix.columns));
  }

  void check(Draw& draw, WeightType type, int32_t num_tokens, int32_t rows, int32_t columns) {
    if (type != WeightType::kBf16 && std::string_view(ops().backend).starts_with("cpu")) {
      return;  // activations of fixed point have bounds of another kind: tests/cpu/fixed_point_test.cc
    }
    const Problem problem = draw_problem(draw, type, num_tokens, rows, columns);
    const StoredMatrix& matrix = problem.matrix;
    const ptrdiff_t stride = rows + 3;
    const std::vector<float> out = run(problem, stride);
    const double bound = bound_of(matrix);
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
          const auto weight = static_cast<size_t>(r * columns + c);
          const auto x = static_cast<double>(problem.x[static_cast<size_t>(ptrdiff_t{t} * columns + c)]);
          sum += matrix.weights[weight] * x;
          magnitude += matrix.magnitudes[weight] * std::abs(x);
        }
        ASSERT_LE(std::abs(static_cast<double>(found) - sum), bound * magnitude)
            << "type " << static_cast<int>(type) << ", " << num_tokens << " tokens, " << rows << " × " << columns
            << ": token " << t << " row " << r;
      }
    }
  }
};

TEST_P(MatmulTest, MatchesDoublePrecisionAtEverySmallSize) {
  KIPP_REQUIRE_OPERATOR(matmul)
  Draw draw(4);
  for (int32_t size = 1; size <= 33; ++size) {
    check(draw, WeightType::kBf16, 1, 5, size);
    check(draw, WeightType::kBf16, 9, 3, size);
    check(draw, WeightType::kBf16, size, 2, 17);
    check(draw, WeightType::kBf16, 3, size, 19);
  }
}

TEST_P(MatmulTest, MatchesDoublePrecisionAtEverySmallNumberOfBlocks) {
  KIPP_REQUIRE_OPERATOR(matmul)
  Draw draw(7);
  for (const WeightType type : kQuantisedTypes) {
    for (int32_t size = 1; size <= 33; ++size) {
      check(draw, type, 1, 5, 32 * size);
      check(draw, type, 9, 3, 32 * size);
      check(draw, type, size, 2, 96);
      check(draw, type, 3, size, 160);
    }
  }
}

TEST_P(MatmulTest, MatchesDoublePrecisionAtTheRegistrysWidths) {
  KIPP_REQUIRE_OPERATOR(matmul)
  Draw draw(5);
  for (const WeightType type : kAllTypes) {
    for (const int32_t columns : kRegistryWidths) {
      check(draw, type, 1, 19, columns);
      check(draw, type, 10, 5, columns);
    }
  }
}

TEST_P(MatmulTest, ATokensResultDoesNotDependOnItsMates) {
  KIPP_REQUIRE_OPERATOR(matmul)
  Draw draw(6);
  for (const WeightType type : kAllTypes) {
    for (const int32_t columns : {32, 192, 1024, 2560}) {
      const Problem all = draw_problem(draw, type, 33, 21, columns);
      const auto rows = static_cast<size_t>(all.matrix.rows);
      const std::vector<float> together = run(all, all.matrix.rows);
      for (int32_t t = 0; t < all.num_tokens; ++t) {
        Problem one = all;
        one.num_tokens = 1;
        one.x.erase(one.x.begin(), one.x.begin() + ptrdiff_t{t} * columns);
        const std::vector<float> alone = run(one, one.matrix.rows);
        ASSERT_EQ(std::memcmp(alone.data(), together.data() + static_cast<size_t>(t) * rows, rows * sizeof(float)), 0)
            << "type " << static_cast<int>(type) << ", " << columns << " columns, token " << t;
      }
    }
  }
}

// Kernels for many tokens work in blocks of rows, columns and tokens: here are several of each, none of them whole.
TEST_P(MatmulTest, BlocksOfManyTokensGiveWhatATokenAloneGives) {
  KIPP_REQUIRE_OPERATOR(matmul)
  Draw draw(8);
  for (const WeightType type : kAllTypes) {
    const Problem all = draw_problem(draw, type, 530, 150, 1120);
    const auto rows = static_cast<size_t>(all.matrix.rows);
    const std::vector<float> together = run(all, all.matrix.rows);
    for (const int32_t t : {0, 17, 511, 512, 529}) {
      Problem one = all;
      one.num_tokens = 1;
      one.x.erase(one.x.begin(), one.x.begin() + ptrdiff_t{t} * all.matrix.columns);
      const std::vector<float> alone = run(one, one.matrix.rows);
      ASSERT_EQ(std::memcmp(alone.data(), together.data() + static_cast<size_t>(t) * rows, rows * sizeof(float)), 0)
          << "type " << static_cast<int>(type) << ", token " << t;
    }
  }
}

KIPP_OPERATOR_TEST_SUITE(MatmulTest);

}  // namespace
}  // namespace kipp
