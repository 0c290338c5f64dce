// Operators that look at one element, or one row, at a time.
#include <fmt/format.h>

#include <cmath>

#include "backend/metal/kernels/arguments.h"
#include "backend/oracle/ops/operators.h"
#include "metal/ops/checks.h"
#include "ops/operator_fixture.h"

namespace kipp::metal_emulation {
namespace {

using namespace kipp_metal;

constexpr uint32_t ceil_div(uint32_t a, uint32_t b) {
  return (a + b - 1) / b;
}

void expect_same_bits(Check& check, const std::vector<float>& found, const std::vector<float>& expected,
                      const char* what) {
  check.note(found);
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::bit_cast<uint32_t>(found[i]) != std::bit_cast<uint32_t>(expected[i])) {
      return check.fail(fmt::format("{}: element {} is {}, not {}", what, i, found[i], expected[i]));
    }
  }
}

void expect_close(Check& check, const std::vector<float>& found, const std::vector<float>& expected, double relative,
                  const char* what) {
  check.note(found);
  for (size_t i = 0; i < expected.size(); ++i) {
    const bool untouched = is_poison(expected[i]) && is_poison(found[i]);
    const double error = std::abs(static_cast<double>(found[i]) - static_cast<double>(expected[i]));
    if (!untouched && !(error <= relative * std::abs(static_cast<double>(expected[i])) + 0x1p-149)) {
      return check.fail(fmt::format("{}: element {} is {}, not {}", what, i, found[i], expected[i]));
    }
  }
}

}  // namespace

bool Check::run(Dispatch dispatch) {
  if (has_failed()) return false;
  dispatch.function = prefix_ + dispatch.function;
  const auto result = metal_emulation::run(dispatch);
  if (!result) fail(result.error().message);
  return result.has_value();
}

void check_embedding(Check& check) {
  Draw draw(1);
  for (const uint32_t hidden : {4U, 192U, 1028U, 5120U}) {
    const std::vector<uint16_t> table = draw.bf16(size_t{11} * hidden);
    const std::vector<int32_t> ids = {10, 0, 3, 3, 7};
    const auto rows = static_cast<uint32_t>(ids.size());
    std::vector<float> out(size_t{rows} * hidden, poison());
    std::vector<float> expected(out.size());
    if (!check.run({.function = "kipp_embedding",
                    .buffers = {{0, buffer(table)}, {1, buffer(ids)}, {2, buffer(out)}},
                    .bytes = {{3, bytes_of(kipp_metal::EmbeddingArgs{rows, hidden})}},
                    .threadgroups = {ceil_div(hidden / 4, kElementwiseThreads), rows},
                    .threads_per_threadgroup = {kElementwiseThreads}})) {
      return;
    }
    oracle::embedding(
        {table.data(), ids.data(), expected.data(), static_cast<int32_t>(rows), static_cast<int32_t>(hidden)});
    expect_same_bits(check, out, expected, "embedding");
  }
}

void check_residual_add(Check& check) {
  Draw draw(2);
  for (const uint32_t count : {4U, 8U, 1020U, 1024U, 1028U}) {
    std::vector<float> x = draw.floats(count);
    const std::vector<float> y = draw.floats(count);
    std::vector<float> expected = x;
    oracle::residual_add({expected.data(), y.data(), count});
    if (!check.run({.function = "kipp_residual_add",
                    .buffers = {{0, buffer(x)}, {1, buffer(y)}},
                    .bytes = {{2, bytes_of(kipp_metal::ElementwiseArgs{count})}},
                    .threadgroups = {ceil_div(count / 4, kElementwiseThreads)},
                    .threads_per_threadgroup = {kElementwiseThreads}})) {
      return;
    }
    expect_same_bits(check, x, expected, "residual_add");
  }
}

// exp of 4 units in the last place (8 roundings), the sum, the quotient and the product; the oracle's exp is within
// one.
void check_swiglu(Check& check) {
  Draw draw(3);
  for (const uint32_t width : {4U, 512U, 1028U, 3072U}) {
    constexpr uint32_t kRows = 3;
    const uint32_t gate_stride = width + 4;
    const uint32_t up_stride = width + 8;
    const uint32_t out_stride = width + 12;
    std::vector<float> gate(size_t{kRows} * gate_stride, poison());
    std::vector<float> up(size_t{kRows} * up_stride, poison());
    std::vector<float> expected(size_t{kRows} * out_stride, poison());
    for (uint32_t r = 0; r < kRows; ++r) {
      std::ranges::copy(draw.floats(width, 90.0F), gate.begin() + r * gate_stride);
      std::ranges::copy(draw.floats(width), up.begin() + r * up_stride);
      oracle::swiglu(
          {gate.data() + r * gate_stride, up.data() + r * up_stride, expected.data() + r * out_stride, width});
    }
    std::vector<float> out(expected.size(), poison());
    if (!check.run({.function = "kipp_swiglu",
                    .buffers = {{0, buffer(std::as_const(gate))}, {1, buffer(std::as_const(up))}, {2, buffer(out)}},
                    .bytes = {{3, bytes_of(kipp_metal::SwigluArgs{kRows, width, gate_stride, up_stride, out_stride})}},
                    .threadgroups = {ceil_div(width / 4, kElementwiseThreads), kRows},
                    .threads_per_threadgroup = {kElementwiseThreads},
                    .poison = {{0, kPoisonF32}, {1, kPoisonF32}}})) {
      return;
    }
    expect_close(check, out, expected, gamma(8 + 3) + gamma(2 + 3), "swiglu");
  }
}

void check_rope(Check& check) {
  Draw draw(4);
  constexpr float kTheta = 1e6F;
  constexpr int32_t kHalf = kHeadWidth / 2;
  for (const uint32_t heads : {1U, 8U, 16U, 40U}) {
    const std::vector<int32_t> positions = {0, 1, 31, 4097, 262143};
    const auto rows = static_cast<uint32_t>(positions.size());
    const uint32_t stride = heads * kHeadWidth + 4;
    std::vector<float> angles;
    for (const int32_t position : positions) {
      for (int32_t i = 0; i < kHalf; ++i) {  // as the oracle's: the angle is FP32, its sine and cosine are double
        const float frequency = 1.0F / static_cast<float>(std::pow(static_cast<double>(kTheta), 2.0 * i / kHeadWidth));
        const auto angle = static_cast<double>(static_cast<float>(position) * frequency);
        angles.push_back(static_cast<float>(std::cos(angle)));
        angles.push_back(static_cast<float>(std::sin(angle)));
      }
    }
    std::vector<float> x(size_t{rows} * stride, poison());
    std::vector<float> expected = x;
    for (uint32_t r = 0; r < rows; ++r) {
      std::vector<float> row = draw.floats(size_t{heads} * kHeadWidth);
      std::ranges::copy(row, x.begin() + r * stride);
      oracle::rope({row.data(), positions.data() + r, 1, static_cast<int32_t>(heads), kHeadWidth, kTheta});
      std::ranges::copy(row, expected.begin() + r * stride);
    }
    if (!check.run({.function = "kipp_rope",
                    .buffers = {{0, buffer(x)}, {1, buffer(std::as_const(angles))}},
                    .bytes = {{2, bytes_of(kipp_metal::RopeArgs{rows, heads, stride})}},
                    .threadgroups = {ceil_div(heads * kHalf, kElementwiseThreads), rows},
                    .threads_per_threadgroup = {kElementwiseThreads},
                    .poison = {{0, kPoisonF32}}})) {
      return;
    }
    expect_same_bits(check, x, expected, "rope");
  }
}

namespace {

struct NormCase {
  uint32_t columns, rows;
  const char* function;
  uint32_t threads, rows_per_threadgroup;
};

// Both sums are of squares; half of their relative error reaches the scale. Then mean, sum with epsilon, root, quotient
// and two products.
void check_norm(Check& check, Draw& draw, const NormCase& norm) {
  const bool gathers = std::string_view(norm.function) == "kipp_rms_norm_gather";
  const bool in_heads = std::string_view(norm.function) == "kipp_rms_norm_heads";
  const uint32_t x_stride = norm.columns + 4;
  const uint32_t out_stride = norm.columns + 8;
  constexpr float kEpsilon = 0.01F;
  std::vector<float> x(size_t{norm.rows} * x_stride, poison());
  const std::vector<uint16_t> weight = draw.bf16(norm.columns);
  std::vector<float> expected(size_t{norm.rows} * out_stride, poison());
  std::vector<int32_t> order = draw.permutation(static_cast<int32_t>(norm.rows));
  for (uint32_t r = 0; r < norm.rows; ++r) {
    std::vector<float> row = draw.floats(norm.columns, r % 2 == 0 ? 1.0F : 0.05F);
    row.back() *= 4.0F * std::sqrt(static_cast<float>(norm.columns));  // a lost tail cannot hide
    std::ranges::copy(row, x.begin() + r * x_stride);
  }
  for (uint32_t r = 0; r < norm.rows; ++r) {
    const auto from = gathers ? static_cast<uint32_t>(order[r]) : r;
    oracle::rms_norm({x.data() + from * x_stride, weight.data(), expected.data() + r * out_stride, 1,
                      static_cast<int32_t>(norm.columns), 0, 0, kEpsilon});
  }
  std::vector<float> out(expected.size(), poison());
  Dispatch dispatch{.function = norm.function,
                    .constants = {{0, {norm.columns}}},
                    .buffers = {{0, buffer(std::as_const(x))}, {1, buffer(weight)}, {2, buffer(out)}},
                    .bytes = {{3, bytes_of(kipp_metal::RmsNormArgs{norm.rows, x_stride, out_stride, kEpsilon})}},
                    .threadgroups = {ceil_div(norm.rows, norm.rows_per_threadgroup)},
                    .threads_per_threadgroup = {norm.threads},
                    .poison = {{0, kPoisonF32}}};
  if (!in_heads) dispatch.threadgroup_memory[0] = 32;
  if (gathers) dispatch.buffers[4] = buffer(std::as_const(order));
  if (!check.run(dispatch)) return;
  const double kernel_depth = 4.0 * ceil_div(norm.columns / 4, kNormThreads) + 5 + kNormThreads / kSimdLanes;
  const double oracle_depth = norm.columns / 16.0 + 4;
  expect_close(check, out, expected, gamma(kernel_depth + 2) / 2 + gamma(oracle_depth + 2) / 2 + gamma(2 * 6),
               norm.function);
}

}  // namespace

void check_rms_norm(Check& check) {
  Draw draw(5);
  for (const uint32_t columns : {4U, 8U, 124U, 128U, 1020U, 1028U}) {
    check_norm(check, draw, {columns, 3, "kipp_rms_norm", kNormThreads, 1});
  }
  for (const int32_t columns : kRegistryWidths) {
    check_norm(check, draw, {static_cast<uint32_t>(columns), 2, "kipp_rms_norm", kNormThreads, 1});
  }
  check_norm(check, draw, {192, 5, "kipp_rms_norm_gather", kNormThreads, 1});
  for (const uint32_t rows : {1U, 4U, 7U}) {
    check_norm(check, draw, {kHeadWidth, rows, "kipp_rms_norm_heads", kHeadNormThreads, kHeadNormThreads / kSimdLanes});
  }
}

void check_kv_write(Check& check) {
  Draw draw(6);
  constexpr int32_t kPositions = 70;
  PagedPool pool(draw, kPositions, kKvHeads, kHeadWidth, KvType::kBf16);
  PagedPool expected = pool;
  const KvLayerView view = pool.view();
  const std::vector<int32_t> positions = {0, 31, 32, 63, 69};
  const std::vector<int32_t> sequences = {1, 1, 1, 1, 1};  // the row before is another sequence's
  const auto rows = static_cast<uint32_t>(positions.size());
  const auto table_stride = static_cast<uint32_t>(pool.block_table().size());
  std::vector<int32_t> tables(table_stride, -1);
  tables.insert(tables.end(), pool.block_table().begin(), pool.block_table().end());
  const uint32_t width = kKvHeads * kHeadWidth;
  const uint32_t stride = width + 4;
  std::vector<float> k = draw.floats(size_t{rows} * stride, 1000.0F);
  std::vector<float> v = draw.floats(size_t{rows} * stride);
  k[1] = std::numeric_limits<float>::infinity();
  v[2] = std::bit_cast<float>(0x7F800001U);  // a NaN whose upper half alone would be infinity
  v[3] = std::bit_cast<float>(0x3F808000U);  // halfway: to even
  for (uint32_t r = 0; r < rows; ++r) {
    oracle::kv_write({k.data() + r * stride, v.data() + r * stride, expected.view(), pool.block_table().data(),
                      positions[r], 1, kKvHeads, kHeadWidth});
  }
  const size_t pool_bytes = pool.num_elements() * 2;
  const auto layer_offset = static_cast<size_t>(width) * 2 * kPositionsPerBlock * 2;  // the middle one of three layers
  if (!check.run({.function = "kipp_kv_write",
                  .buffers = {{0, buffer(std::as_const(k))},
                              {1, buffer(std::as_const(v))},
                              {2, {view.blocks - layer_offset, pool_bytes, layer_offset, false}},
                              {3, buffer(positions)},
                              {4, buffer(sequences)},
                              {5, buffer(std::as_const(tables))}},
                  .bytes = {{6, bytes_of(kipp_metal::KvWriteArgs{static_cast<uint64_t>(view.block_stride_bytes) / 2,
                                                                 rows, stride, stride, table_stride})}},
                  .threadgroups = {width / 4 / kElementwiseThreads, rows, 2},
                  .threads_per_threadgroup = {kElementwiseThreads}})) {
    return;
  }
  const auto* found = reinterpret_cast<const uint16_t*>(view.blocks - layer_offset);
  const auto* wanted = reinterpret_cast<const uint16_t*>(expected.view().blocks - layer_offset);
  check.note(std::vector<uint16_t>(found, found + pool.num_elements()));
  for (size_t i = 0; i < pool.num_elements(); ++i) {
    if (found[i] != wanted[i]) return check.fail(fmt::format("kv_write: element {} of the pool", i));
  }
}

void check_argmax(Check& check) {
  Draw draw(7);
  for (const uint32_t width : {1U, 255U, 257U, 3000U}) {
    constexpr uint32_t kRows = 5;
    const uint32_t stride = width + 3;
    std::vector<float> logits(size_t{kRows} * stride, poison());
    std::vector<uint32_t> expected(kRows);
    for (uint32_t r = 0; r < kRows; ++r) {
      float* row = logits.data() + r * stride;
      std::ranges::copy(draw.floats(width), row);
      if (r == 1) std::fill(row, row + width, -2.0F);  // equals: the first
      if (r == 2) row[width - 1] = 5.0F;
      if (r == 3) row[width / 2] = std::numeric_limits<float>::infinity();
      if (r == 4) row[width / 2] = std::numeric_limits<float>::quiet_NaN();
      expected[r] = r >= 3 ? 0xFFFFFFFFU : static_cast<uint32_t>(std::max_element(row, row + width) - row);
    }
    std::vector<ArgmaxResult> results(kRows);
    if (!check.run({.function = "kipp_argmax",
                    .buffers = {{0, buffer(std::as_const(logits))}, {1, buffer(results)}},
                    .bytes = {{2, bytes_of(kipp_metal::ArgmaxArgs{kRows, width, stride})}},
                    .threadgroup_memory = {{0, kArgmaxThreads / kSimdLanes * 16}},
                    .threadgroups = {kRows},
                    .threads_per_threadgroup = {kArgmaxThreads},
                    .poison = {{0, kPoisonF32}}})) {
      return;
    }
    for (uint32_t r = 0; r < kRows; ++r) {
      check.note(std::vector<uint32_t>{results[r].index, results[r].finite});
      const bool has_value = r >= 3 || results[r].value == logits[r * stride + expected[r]];
      if (results[r].index != expected[r] || results[r].finite != (r < 3 ? 1U : 0U) || !has_value) {
        return check.fail(fmt::format("argmax: row {} of width {}: index {}", r, width, results[r].index));
      }
    }
  }
}

void check_geometry(Check& check) {
  std::vector<Geometry> found(1);
  if (!check.run(
          {.function = "kipp_probe_geometry", .buffers = {{0, buffer(found)}}, .threads_per_threadgroup = {64}})) {
    return;
  }
  const Geometry expected{kSimdLanes,
                          64,
                          kMatvecRows,
                          kMatvecTokens,
                          kMatmulTokens,
                          kMatmulRows,
                          kMatmulThreadgroupBytes,
                          kSplitPositions,
                          kDecodeThreadgroupBytes,
                          kPromptTokens,
                          kPromptThreadgroupBytes,
                          sizeof(kipp_metal::KvWriteArgs),
                          sizeof(kipp_metal::AttentionDecodeArgs),
                          sizeof(kipp_metal::AttentionPromptArgs)};
  if (std::memcmp(&expected, found.data(), sizeof expected) != 0) check.fail("geometry: the sizes differ");
}

}  // namespace kipp::metal_emulation
