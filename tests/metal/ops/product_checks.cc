// Products with matrices, in every type that a matrix is stored as, against double precision.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "backend/metal/kernels/arguments.h"
#include "metal/ops/checks.h"
#include "ops/stored_matrix.h"

namespace kipp::metal_emulation {
namespace {

using namespace kipp_metal;

constexpr WeightType kTypes[] = {WeightType::kBf16, WeightType::kQ8_0, WeightType::kAffine4Gs32};

std::string kernel_name(const char* stem, WeightType type) {
  constexpr const char* kSuffixes[] = {"bf16", "q8_0", "affine4"};
  return fmt::format("kipp_{}_{}", stem, kSuffixes[static_cast<size_t>(type)]);
}

struct Problem {
  StoredMatrix matrix;
  uint32_t tokens, x_stride, out_stride;
  std::vector<float> x;      // [tokens][x_stride], poison between rows
  std::vector<float> start;  // [tokens][out_stride] what out holds before; poison between rows
};

// The last column is 64 times as large as the others, so that a lost tail cannot hide in the bound. The matrix has no
// byte behind its last row.
Problem draw_problem(Draw& draw, WeightType type, uint32_t tokens, uint32_t rows, uint32_t columns) {
  Problem problem{draw_matrix(draw, type, static_cast<int32_t>(rows), static_cast<int32_t>(columns)),
                  tokens,
                  columns + 4,
                  rows + 5,
                  std::vector<float>(size_t{tokens} * (columns + 4), poison()),
                  std::vector<float>(size_t{tokens} * (rows + 5), poison())};
  problem.matrix.data.resize(static_cast<size_t>(weight_row_bytes(type, static_cast<int32_t>(columns)) * rows));
  for (uint32_t t = 0; t < tokens; ++t) {
    std::vector<float> row = draw.floats(columns);
    row.back() *= 64.0F;
    std::ranges::copy(row, problem.x.begin() + t * problem.x_stride);
    std::ranges::copy(draw.floats(rows), problem.start.begin() + t * problem.out_stride);
  }
  return problem;
}

// Tokens first … first + count - 1 by `kernel`, which has what the products with a matrix do not share.
std::vector<float> run_product(Check& check, const Problem& problem, uint32_t first, uint32_t count, bool adds,
                               Dispatch kernel) {
  std::vector<float> out(problem.start.begin() + first * problem.out_stride,
                         problem.start.begin() + (first + count) * problem.out_stride);
  kernel.constants[0] = {static_cast<uint32_t>(problem.matrix.columns)};
  kernel.constants[2] = {adds};
  kernel.buffers = {
      {0, buffer(problem.matrix.data)}, {1, buffer(problem.x, size_t{first} * problem.x_stride)}, {2, buffer(out)}};
  kernel.poison = {{1, kPoisonF32}};
  check.run(kernel);
  check.note(out);
  return out;
}

std::vector<float> run_matvec(Check& check, const Problem& problem, uint32_t first, uint32_t count, bool adds) {
  const auto rows = static_cast<uint32_t>(problem.matrix.rows);
  return run_product(check, problem, first, count, adds,
                     {.function = kernel_name("matvec", problem.matrix.type),
                      .constants = {{1, {count}}},
                      .bytes = {{3, bytes_of(kipp_metal::MatvecArgs{rows, problem.x_stride, problem.out_stride})}},
                      .threadgroups = {(rows + kMatvecRows - 1) / kMatvecRows},
                      .threads_per_threadgroup = {kMatvecThreads}});
}

std::vector<float> run_matmul(Check& check, const Problem& problem, uint32_t first, uint32_t count, bool adds) {
  const auto rows = static_cast<uint32_t>(problem.matrix.rows);
  const std::vector<std::byte> args =
      bytes_of(kipp_metal::MatmulArgs{count, rows, problem.x_stride, problem.out_stride});
  return run_product(
      check, problem, first, count, adds,
      {.function = kernel_name("matmul", problem.matrix.type),
       .bytes = {{3, args}},
       .threadgroup_memory = {{0, kMatmulThreadgroupBytes}},
       .threadgroups = {(rows + kMatmulRows - 1) / kMatmulRows, (count + kMatmulTokens - 1) / kMatmulTokens},
       .threads_per_threadgroup = {kMatmulThreads}});
}

using Run = std::vector<float> (*)(Check&, const Problem&, uint32_t, uint32_t, bool);

// depth: most roundings that a product goes through in its sum. The product itself, scale and bias, and the sum of x
// that a bias multiplies come on top, and the addition to what was there.
void compare(Check& check, Problem& problem, const std::vector<float>& out, bool adds, double depth) {
  const StoredMatrix& matrix = problem.matrix;
  const double bound = gamma(depth + 1 + (matrix.type == WeightType::kBf16 ? 0 : 6) + (adds ? 1 : 0));
  for (uint32_t t = 0; t < problem.tokens && !check.has_failed(); ++t) {
    for (uint32_t r = 0; r < problem.out_stride; ++r) {
      const size_t at = size_t{t} * problem.out_stride + r;
      if (r >= static_cast<uint32_t>(matrix.rows)) {
        if (!is_poison(out[at])) check.fail("wrote between rows");
        continue;
      }
      double sum = adds ? static_cast<double>(problem.start[at]) : 0.0;
      double magnitude = std::abs(sum);
      for (int32_t c = 0; c < matrix.columns; ++c) {
        const auto weight = static_cast<size_t>(int64_t{r} * matrix.columns + c);
        const auto x = static_cast<double>(problem.x[size_t{t} * problem.x_stride + static_cast<uint32_t>(c)]);
        sum += matrix.weights[weight] * x;
        magnitude += matrix.magnitudes[weight] * std::abs(x);
      }
      if (!(std::abs(static_cast<double>(out[at]) - sum) <= bound * magnitude)) {
        return check.fail(fmt::format("type {}, {} tokens, {} × {}: token {} row {} is {}, not {}",
                                      static_cast<int>(matrix.type), problem.tokens, matrix.rows, matrix.columns, t, r,
                                      out[at], sum));
      }
    }
  }
}

// A lane's terms, eight products at a time, and the lanes.
double matvec_depth(uint32_t columns) {
  return (columns + 255) / 256 + 8 + 5;
}

// Each token alone, and with other mates.
void compare_alone(Check& check, Run run, Problem& problem, const std::vector<float>& together, bool adds) {
  for (const uint32_t count : {1U, 3U}) {
    for (uint32_t t = 0; t + count <= problem.tokens && !check.has_failed(); t += count) {
      const std::vector<float> alone = run(check, problem, t, count, adds);
      if (std::memcmp(alone.data(), together.data() + size_t{t} * problem.out_stride, alone.size() * sizeof(float)) !=
          0) {
        check.fail(fmt::format("{} tokens from {} on have other bits than among {}", count, t, problem.tokens));
      }
    }
  }
}

}  // namespace

void check_matvec(Check& check) {
  Draw draw(11);
  for (const WeightType type : kTypes) {
    for (const uint32_t columns : {32U, 64U, 224U, 256U, 288U}) {
      for (const uint32_t tokens : {1U, 2U, 8U}) {
        Problem problem = draw_problem(draw, type, tokens, 1 + columns % 13, columns);
        const bool adds = tokens == 2;
        compare(check, problem, run_matvec(check, problem, 0, tokens, adds), adds, matvec_depth(columns));
      }
    }
    for (const int32_t columns : kRegistryWidths) {
      Problem problem = draw_problem(draw, type, 2, 5, static_cast<uint32_t>(columns));
      compare(check, problem, run_matvec(check, problem, 0, 2, false), false,
              matvec_depth(static_cast<uint32_t>(columns)));
    }
    Problem problem = draw_problem(draw, type, kMatvecTokens, 19, 544);
    const std::vector<float> together = run_matvec(check, problem, 0, kMatvecTokens, true);
    compare_alone(check, run_matvec, problem, together, true);
  }
}

void check_matmul(Check& check) {
  Draw draw(12);
  for (const WeightType type : kTypes) {
    for (const uint32_t tokens : {1U, 31U, 33U}) {
      for (const uint32_t rows : {3U, 64U, 70U}) {
        const uint32_t columns = 32 + 32 * (tokens % 3);
        Problem problem = draw_problem(draw, type, tokens, rows, columns);
        const bool adds = rows == 70;
        compare(check, problem, run_matmul(check, problem, 0, tokens, adds), adds, columns);
      }
    }
    for (const int32_t columns : kRegistryWidths) {
      if (columns > 6144 && type != WeightType::kBf16) continue;
      Problem problem = draw_problem(draw, type, 2, 5, static_cast<uint32_t>(columns));
      compare(check, problem, run_matmul(check, problem, 0, 2, false), false, columns);
    }
    Problem problem = draw_problem(draw, type, 40, 9, 96);
    const std::vector<float> together = run_matmul(check, problem, 0, 40, false);
    compare_alone(check, run_matmul, problem, together, false);
  }
}

}  // namespace kipp::metal_emulation
