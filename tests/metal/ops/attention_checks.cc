// Attention of generated and of prompt rows over paged K and V, and of whole prompts over plain arrays, against double
// precision. All memory that holds no K or V of a visible position is poison; block tables are scrambled.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "backend/metal/kernels/arguments.h"
#include "metal/ops/checks.h"
#include "ops/operator_fixture.h"

namespace kipp::metal_emulation {
namespace {

using namespace kipp_metal;

constexpr uint32_t kPoisonPair = uint32_t{kPoisonBf16} << 16 | kPoisonBf16;
constexpr uint32_t kBlockElements = 2 * kKvHeads * kPositionsPerBlock * kHeadWidth;
constexpr uint32_t kBlockStride = kBlockElements + 64;  // blocks of a pool of several layers do not touch

// K and V of a few sequences; where in the pool they are depends on the seed, what they are does not.
class Sequences {
 public:
  Sequences(const std::vector<uint32_t>& lengths, uint64_t placement) : lengths_(lengths) {
    Draw places(placement);
    uint32_t blocks = 3;  // that nobody has
    for (const uint32_t length : lengths) {
      table_stride_ = std::max(table_stride_, (length + kPositionsPerBlock - 1) / kPositionsPerBlock + 1);
      blocks += (length + kPositionsPerBlock - 1) / kPositionsPerBlock;
    }
    pool_.assign(size_t{blocks} * kBlockStride, kPoisonBf16);
    std::vector<int32_t> free = places.permutation(static_cast<int32_t>(blocks));
    tables_.assign(lengths.size() * table_stride_, 1 << 20);  // what no row may look at leads out of the pool
    for (size_t s = 0; s < lengths.size(); ++s) {
      Draw draw(100 + s);
      for (uint32_t p = 0; p < lengths[s]; ++p) {
        int32_t& block = tables_[s * table_stride_ + p / kPositionsPerBlock];
        if (p % kPositionsPerBlock == 0) {
          block = free.back();
          free.pop_back();
        }
        for (uint32_t part = 0; part < 2; ++part) {
          for (uint32_t head = 0; head < kKvHeads; ++head) {
            for (uint32_t d = 0; d < kHeadWidth; ++d)
              pool_[index(s, p, part, head, d)] = f32_to_bf16(draw.uniform(-1, 1));
          }
        }
      }
    }
  }

  double get(size_t sequence, uint32_t position, uint32_t part, uint32_t head, uint32_t d) const {
    return static_cast<double>(bf16_to_f32(pool_[index(sequence, position, part, head, d)]));
  }
  uint32_t table_stride() const { return table_stride_; }
  const std::vector<uint16_t>& pool() const { return pool_; }
  const std::vector<int32_t>& tables() const { return tables_; }

 private:
  size_t index(size_t sequence, uint32_t position, uint32_t part, uint32_t head, uint32_t d) const {
    const auto block = static_cast<size_t>(tables_[sequence * table_stride_ + position / kPositionsPerBlock]);
    const uint32_t in_block =
        ((part * kKvHeads + head) * kPositionsPerBlock + position % kPositionsPerBlock) * kHeadWidth + d;
    return block * kBlockStride + in_block;
  }

  std::vector<uint32_t> lengths_;
  uint32_t table_stride_ = 1;
  std::vector<int32_t> tables_;
  std::vector<uint16_t> pool_;
};

struct Row {
  uint32_t sequence, position;
};

using Value = std::function<double(uint32_t position, uint32_t part, uint32_t kv_head, uint32_t d)>;

// One query head of a row that sees `count` positions. A score is one chain of products, scaled: its error δ becomes
// e^2δ - 1 of a weight and the sum of weights. Those go through an exponential (8 roundings) and the sum, and with
// every block, split and simdgroup through one more exponential and a product.
void compare_head(Check& check, const float* q, const float* out, uint32_t count, uint32_t kv_head,
                  const Value& value) {
  std::vector<double> scores(count);
  double magnitude = 0.0;
  for (uint32_t p = 0; p < count; ++p) {
    double terms = 0.0;
    for (uint32_t d = 0; d < kHeadWidth; ++d) {
      const double term = static_cast<double>(q[d]) * value(p, 0, kv_head, d) / std::sqrt(double{kHeadWidth});
      scores[p] += term;
      terms += std::abs(term);
    }
    magnitude = std::max(magnitude, terms);
  }
  const auto [low, high] = std::ranges::minmax(scores);
  const double delta = gamma(kHeadWidth + 4) * magnitude + kUnitRoundoff * (high - low);
  const double steps = count / 32.0 + 12;
  const double relative = std::expm1(2.0 * delta) + gamma(2.0 * (count + 10.0 * steps + 12));
  double total = 0.0;
  for (double& score : scores) total += score = std::exp(score - high);
  for (uint32_t d = 0; d < kHeadWidth; ++d) {
    double expected = 0.0;
    double terms = 0.0;
    for (uint32_t p = 0; p < count; ++p) {
      const double term = scores[p] / total * value(p, 1, kv_head, d);
      expected += term;
      terms += std::abs(term);
    }
    if (!(std::abs(static_cast<double>(out[d]) - expected) <= relative * terms)) {
      return check.fail(fmt::format("element {} of {} positions is {}, not {}", d, count, out[d], expected));
    }
  }
}

// Heads 0, 1, one in the middle and the last: each has another place in its group and in the row.
void compare_rows(Check& check, const std::vector<float>& q, const std::vector<float>& out, uint32_t heads,
                  const std::vector<Row>& rows,
                  const std::function<double(uint32_t, uint32_t, uint32_t, uint32_t, uint32_t)>& value) {
  const uint32_t q_stride = heads * kHeadWidth + 4;
  const uint32_t out_stride = heads * kHeadWidth + 8;
  for (uint32_t r = 0; r < rows.size() && !check.has_failed(); ++r) {
    for (const uint32_t head : {0U, 1U, heads / 2 + 1, heads - 1}) {
      compare_head(
          check, q.data() + size_t{r} * q_stride + head * kHeadWidth,
          out.data() + size_t{r} * out_stride + head * kHeadWidth, rows[r].position + 1, head / (heads / kKvHeads),
          [&](uint32_t p, uint32_t part, uint32_t h, uint32_t d) { return value(rows[r].sequence, p, part, h, d); });
    }
  }
}

std::vector<float> draw_queries(Draw& draw, uint32_t rows, uint32_t heads) {
  const uint32_t stride = heads * kHeadWidth + 4;
  std::vector<float> q(size_t{rows} * stride, poison());
  for (uint32_t r = 0; r < rows; ++r)
    std::ranges::copy(draw.floats(size_t{heads} * kHeadWidth, 2.0F), q.begin() + r * stride);
  return q;
}

std::vector<float> decode(Check& check, const Sequences& kv, const std::vector<Row>& rows, const std::vector<float>& q,
                          uint32_t heads, uint32_t max_splits) {
  std::vector<int32_t> positions;
  std::vector<int32_t> sequences;
  for (const Row& row : rows) {
    positions.push_back(static_cast<int32_t>(row.position));
    sequences.push_back(static_cast<int32_t>(row.sequence));
  }
  const auto num_rows = static_cast<uint32_t>(rows.size());
  const size_t parts = size_t{num_rows} * heads * max_splits;
  std::vector<float> values(parts * kHeadWidth, poison());
  std::vector<float> stats(parts * 2, poison());
  std::vector<float> out(size_t{num_rows} * (heads * kHeadWidth + 8), poison());
  const std::vector<std::byte> args = bytes_of(kipp_metal::AttentionDecodeArgs{
      kBlockStride, kv.table_stride(), num_rows, max_splits, heads * kHeadWidth + 4, heads * kHeadWidth + 8, 0});
  check.run({.function = "kipp_attention_decode",
             .constants = {{0, {heads}}},
             .buffers = {{0, buffer(q)},
                         {1, buffer(kv.pool())},
                         {2, buffer(std::as_const(positions))},
                         {3, buffer(std::as_const(sequences))},
                         {4, buffer(kv.tables())},
                         {5, buffer(values)},
                         {6, buffer(stats)}},
             .bytes = {{7, args}},
             .threadgroup_memory = {{0, kDecodeThreadgroupBytes}},
             .threadgroups = {kKvHeads, max_splits, num_rows},
             .threads_per_threadgroup = {kDecodeThreads},
             .poison = {{0, kPoisonF32}, {1, kPoisonPair}}});
  check.run({.function = "kipp_attention_merge",
             .constants = {{0, {heads}}},
             .buffers = {{0, buffer(std::as_const(values))},
                         {1, buffer(std::as_const(stats))},
                         {2, buffer(std::as_const(positions))},
                         {3, buffer(out)}},
             .bytes = {{4, args}},
             .threadgroups = {heads, num_rows},
             .threads_per_threadgroup = {kMergeThreads},
             .poison = {{0, kPoisonF32}, {1, kPoisonF32}}});
  check.note(out);
  return out;
}

std::vector<float> prompt(Check& check, const Sequences& kv, const std::vector<PromptTile>& tiles,
                          const std::vector<float>& q, uint32_t heads) {
  const uint32_t q_stride = heads * kHeadWidth + 4;
  const uint32_t out_stride = heads * kHeadWidth + 8;
  std::vector<float> out(q.size() / q_stride * out_stride, poison());
  check.run(
      {.function = "kipp_attention_prompt",
       .constants = {{0, {heads}}},
       .buffers =
           {{0, buffer(q)}, {1, buffer(kv.pool())}, {2, buffer(tiles)}, {3, buffer(kv.tables())}, {4, buffer(out)}},
       .bytes = {{5,
                  bytes_of(kipp_metal::AttentionPromptArgs{kBlockStride, kv.table_stride(), q_stride, out_stride, 0})}},
       .threadgroup_memory = {{0, kPromptThreadgroupBytes}},
       .threadgroups = {static_cast<uint32_t>(tiles.size()), heads},
       .threads_per_threadgroup = {kPromptThreads},
       .poison = {{0, kPoisonF32}, {1, kPoisonPair}}});
  check.note(out);
  return out;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

void check_attention_decode(Check& check) {
  Draw draw(21);
  const std::vector<uint32_t> lengths = {300, 70, 520};
  const std::vector<Row> rows = {{0, 299}, {1, 0}, {1, 31}, {2, 511}, {1, 69}, {0, 255}, {0, 256}, {1, 32}};
  const Sequences kv(lengths, 1);
  const auto value = [&](uint32_t s, uint32_t p, uint32_t part, uint32_t h, uint32_t d) {
    return kv.get(s, p, part, h, d);
  };
  for (const uint32_t heads : {8U, 16U, 32U, 40U, 64U}) {
    const std::vector<Row> some(rows.begin(), rows.begin() + (heads == 16 ? 8 : 3));
    const std::vector<float> q = draw_queries(draw, static_cast<uint32_t>(some.size()), heads);
    compare_rows(check, q, decode(check, kv, some, q, heads, 3), heads, some, value);
  }
  const std::vector<float> q = draw_queries(draw, static_cast<uint32_t>(rows.size()), 16);
  const std::vector<float> together = decode(check, kv, rows, q, 16, 2);
  if (!same_bits(decode(check, Sequences(lengths, 2), rows, q, 16, 5), together))
    check.fail("bits depend on placement");
  for (size_t r = 0; r < rows.size() && !check.has_failed(); ++r) {
    const size_t q_stride = q.size() / rows.size();
    const size_t stride = together.size() / rows.size();
    const std::vector<float> own(q.begin() + static_cast<ptrdiff_t>(r * q_stride),
                                 q.begin() + static_cast<ptrdiff_t>((r + 1) * q_stride));
    const std::vector<float> expected(together.begin() + static_cast<ptrdiff_t>(r * stride),
                                      together.begin() + static_cast<ptrdiff_t>((r + 1) * stride));
    const uint32_t splits = rows[r].position / kSplitPositions + 1;
    if (!same_bits(decode(check, kv, {rows[r]}, own, 16, splits), expected)) check.fail("bits depend on mates");
  }
}

void check_attention_prompt(Check& check) {
  Draw draw(22);
  const std::vector<uint32_t> lengths = {75, 40};
  const Sequences kv(lengths, 3);
  const auto value = [&](uint32_t s, uint32_t p, uint32_t part, uint32_t h, uint32_t d) {
    return kv.get(s, p, part, h, d);
  };
  // Rows 0 … 74: the first sequence; then the last seven tokens of the second.
  std::vector<Row> rows;
  for (uint32_t p = 0; p < 75; ++p) rows.push_back({0, p});
  for (uint32_t p = 33; p < 40; ++p) rows.push_back({1, p});
  const std::vector<PromptTile> tiles = {{64, 64, 11, 0}, {32, 32, 32, 0}, {75, 33, 7, 1}, {0, 0, 32, 0}};
  for (const uint32_t heads : {16U, 40U}) {
    const std::vector<float> q = draw_queries(draw, static_cast<uint32_t>(rows.size()), heads);
    const std::vector<float> whole = prompt(check, kv, tiles, q, heads);
    compare_rows(check, q, whole, heads, rows, value);
    if (heads != 16) continue;
    const Sequences elsewhere(lengths, 4);
    for (const uint32_t chunk : {1U, 7U, 31U}) {
      std::vector<PromptTile> chunks = {{75, 33, 3, 1}, {78, 36, 4, 1}};
      for (uint32_t p = 0; p < 75; p += chunk) chunks.push_back({p, p, std::min(chunk, 75 - p), 0});
      if (chunk == 1) chunks.erase(chunks.begin() + 12, chunks.end() - 4);
      const std::vector<float> cut = prompt(check, elsewhere, chunks, q, heads);
      for (const PromptTile& tile : chunks) {
        const size_t stride = whole.size() / rows.size();
        const size_t at = tile.first_row * stride;
        if (std::memcmp(cut.data() + at, whole.data() + at, tile.num_tokens * stride * sizeof(float)) != 0) {
          check.fail(fmt::format("chunks of {} have other bits", chunk));
        }
      }
    }
  }
}

void check_attention_stateless(Check& check) {
  Draw draw(23);
  constexpr uint32_t kTokens = 37;
  constexpr uint32_t kWidth = kKvHeads * kHeadWidth;
  constexpr uint32_t kStride = kWidth + 4;
  std::vector<float> k(size_t{kTokens} * kStride, poison());
  std::vector<float> v = k;
  std::vector<Row> rows;
  for (uint32_t t = 0; t < kTokens; ++t) {
    rows.push_back({0, t});
    std::ranges::copy(draw.floats(kWidth), k.begin() + t * kStride);
    std::ranges::copy(draw.floats(kWidth), v.begin() + t * kStride);
  }
  for (const uint32_t heads : {16U, 40U}) {
    const std::vector<float> q = draw_queries(draw, kTokens, heads);
    std::vector<float> out(size_t{kTokens} * (heads * kHeadWidth + 8), poison());
    if (!check.run({.function = "kipp_attention_stateless",
                    .constants = {{0, {heads}}},
                    .buffers = {{0, buffer(q)},
                                {1, buffer(std::as_const(k))},
                                {2, buffer(std::as_const(v))},
                                {3, buffer(out)}},
                    .bytes = {{4, bytes_of(kipp_metal::StatelessAttentionArgs{kTokens, heads * kHeadWidth + 4, kStride,
                                                                              heads * kHeadWidth + 8})}},
                    .threadgroups = {heads, kTokens},
                    .threads_per_threadgroup = {kSimdLanes},
                    .poison = {{0, kPoisonF32}, {1, kPoisonF32}, {2, kPoisonF32}}})) {
      return;
    }
    check.note(out);
    compare_rows(check, q, out, heads, rows, [&](uint32_t, uint32_t p, uint32_t part, uint32_t h, uint32_t d) {
      return static_cast<double>(round_to_bf16((part == 0 ? k : v)[size_t{p} * kStride + h * kHeadWidth + d]));
    });
  }
}

}  // namespace kipp::metal_emulation
