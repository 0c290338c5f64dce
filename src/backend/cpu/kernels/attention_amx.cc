// Attention in AMX tiles over K and V in BF16, a segment at a time: all scores, their softmax, then all sums of values.
// K and V are exact; queries and weights enter as the sum of two BF16 numbers each (a relative error of 2^-16). Each
// score is one chain of product-sums over the channels, each sum one chain over the segment's positions. A position
// that a query does not see has the weight 0, which changes no bit of a sum: so chunks and tiles can be cut anywhere.
#include "backend/cpu/kernels/bf16_terms.h"
#include "backend/cpu/kernels/level.h"
#include "backend/cpu/kernels/simd.h"
#include "backend/cpu/kernels/tiles.h"
#include "backend/cpu/kernels/transpose.h"

namespace kipp::cpu::KIPP_CPU_LEVEL {
namespace {

constexpr int32_t kTileRows = 16;
constexpr int32_t kTileBytes = 64;  // of a row
constexpr int32_t kTileQueries = 16;
constexpr int32_t kQueryTiles = kMaxQueries / kTileQueries;
constexpr int32_t kTerms = 2;          // of a query and of a weight
constexpr int32_t kStepChannels = 32;  // of one tile product
constexpr int32_t kMaxHeadDim = 256;
constexpr int32_t kMaxSteps = kMaxHeadDim / kStepChannels;
constexpr int32_t kSegmentBlocks = kSegmentPositions / kBlockPositions;
constexpr float kMinusInfinity = -__builtin_inff();

struct alignas(64) Tile {
  uint32_t words[kTileRows][kTileBytes / 4];
};

// What one call needs besides the partial result; lies on the stack.
struct Scratch {
  Tile queries[kQueryTiles][kMaxSteps][kTerms];  // right operands: [pairs of channels][queries]
  alignas(64) float scores[kQueryTiles][kSegmentPositions][kTileQueries];
  alignas(64) float turned[kTileQueries][kSegmentPositions];  // of one tile of queries
  Tile weights[kSegmentBlocks][kQueryTiles][kTerms];          // left operands: [queries][positions]
  Tile values[2][2];                                          // right operands: [pairs of positions][channels]
};

// The tile's queries and the segment's positions.
struct Work {
  const AttendArgs& args;
  int32_t num_queries;
  int32_t num_query_tiles;
  int32_t first_block;  // of the segment
  int32_t count;        // positions up to the last one that a query sees; may exceed the segment

  int32_t num_positions() const { return smaller(count, kSegmentPositions); }
  int32_t num_blocks() const { return (num_positions() + kBlockPositions - 1) / kBlockPositions; }
  int32_t num_steps() const { return args.head_dim / kStepChannels; }
  const uint16_t* vector(const std::byte* const* blocks, int32_t block, int32_t position) const {
    return reinterpret_cast<const uint16_t*>(blocks[first_block + block] + args.head_offset) +
           position * args.position_stride;
  }
  int32_t queries_of(int32_t tile) const { return smaller(kTileQueries, num_queries - tile * kTileQueries); }
  int32_t seen_by_all(int32_t tile) const {
    return args.first_position + tile * kTileQueries / args.group + 1 - first_block * kBlockPositions;
  }
  // How many of the segment's positions each query of a tile sees; 0 for lanes without one.
  __m512i visible(int32_t tile) const {
    alignas(64) int32_t counts[kTileQueries];
    for (int32_t lane = 0; lane < kTileQueries; ++lane) {
      const int32_t query = tile * kTileQueries + lane;
      const int32_t token = query / args.group;
      const int32_t seen = args.first_position + token + 1 - first_block * kBlockPositions;
      counts[lane] = query < num_queries ? larger(0, smaller(seen, kSegmentPositions)) : 0;
    }
    return _mm512_load_si512(counts);
  }
};

// Queries as right operands: lane q of row i of a step holds channels 2i and 2i + 1 of query q.
void pack_queries(const Work& work, Scratch& scratch) {
  const AttendArgs& args = work.args;
  for (int32_t tile = 0; tile < work.num_query_tiles; ++tile) {
    for (int32_t step = 0; step < work.num_steps(); ++step) {
      __m512i terms[kTerms][kTileQueries] = {};
      for (int32_t lane = 0; lane < work.queries_of(tile); ++lane) {
        const int32_t q = tile * kTileQueries + lane;
        const float* query = args.q + q / args.group * args.token_stride + ptrdiff_t{q % args.group} * args.head_dim;
        __m512 low = _mm512_loadu_ps(query + step * kStepChannels);
        __m512 high = _mm512_loadu_ps(query + step * kStepChannels + kLanes);
        for (auto& term : terms) {
          term[lane] = next_term(low, high);
        }
      }
      for (int32_t term = 0; term < kTerms; ++term) {
        transpose(terms[term]);
        for (int32_t pair = 0; pair < kTileRows; ++pair) {
          _mm512_store_si512(scratch.queries[tile][step][term].words[pair], terms[term][pair]);
        }
      }
    }
  }
}

// Few queries wait for memory. So V is asked for with the scores, and the K of what comes next from then on.
void prefetch_positions(const Work& work, int32_t block, int32_t begin, int32_t end) {
  const int32_t bytes = work.args.head_dim * 2;
  for (int32_t position = begin; position < end; ++position) {
    if (block + 2 < work.num_blocks()) {
      prefetch(work.vector(work.args.keys, block + 2, position), bytes);
    }
    prefetch(work.vector(work.args.values, block, position), bytes);
  }
}

// Scores of a block's 32 positions, unscaled. Tiles 0 to 3 are sums, 4 and 5 K, 6 and 7 queries.
template <int32_t kTiles>
void score_block(const Work& work, int32_t block, Scratch& scratch) {
  const ptrdiff_t stride = work.args.position_stride * 2;
  const uint16_t* first = work.vector(work.args.keys, block, 0);
  const uint16_t* second = first + kTileRows * work.args.position_stride;
  tile_zero<0>();
  tile_zero<1>();
  tile_zero<2>();
  tile_zero<3>();
  for (int32_t step = 0; step < work.num_steps(); ++step) {
    if constexpr (kTiles == 1) {
      prefetch_positions(work, block, kBlockPositions * step / work.num_steps(),
                         kBlockPositions * (step + 1) / work.num_steps());
    }
    tile_load<4>(first + step * kStepChannels, stride);
    tile_load<5>(second + step * kStepChannels, stride);
    for (int32_t term = 0; term < kTerms; ++term) {
      tile_load<6>(&scratch.queries[0][step][term], kTileBytes);
      tile_multiply<0, 4, 6>();
      tile_multiply<1, 5, 6>();
      if constexpr (kTiles == 2) {
        tile_load<7>(&scratch.queries[1][step][term], kTileBytes);
        tile_multiply<2, 4, 7>();
        tile_multiply<3, 5, 7>();
      }
    }
  }
  float(*scores)[kTileQueries] = scratch.scores[0] + ptrdiff_t{block} * kBlockPositions;
  tile_store<0>(scores, kTileBytes);
  tile_store<1>(scores + kTileRows, kTileBytes);
  if constexpr (kTiles == 2) {
    scores += kSegmentPositions;
    tile_store<2>(scores, kTileBytes);
    tile_store<3>(scores + kTileRows, kTileBytes);
  }
}

// Share `index` of the `count` equal parts in which the next K is asked for.
void prefetch_next(const Work& work, const UpcomingKeys& next, int32_t index, int32_t count) {
  const int32_t num_positions = next.num_blocks * kBlockPositions;
  for (int32_t p = num_positions * index / count; p < num_positions * (index + 1) / count; ++p) {
    const std::byte* block = next.keys[p / kBlockPositions] + next.head_offset;
    prefetch(reinterpret_cast<const uint16_t*>(block) + p % kBlockPositions * work.args.position_stride,
             work.args.head_dim * 2);
  }
}

// Scores turned, so that a query's are one row, and scaled: what a query does not see becomes minus infinity. Returns
// each query's largest score, a lane each.
__m512 turn_scores(const Work& work, int32_t tile, Scratch& scratch) {
  const __m512 scale = _mm512_set1_ps(1.0F / __builtin_sqrtf(static_cast<float>(work.args.head_dim)));
  const __m512 unseen = _mm512_set1_ps(kMinusInfinity);
  const __m512i visible = work.visible(tile);
  const int32_t seen_by_all = work.seen_by_all(tile);
  __m512 largest = unseen;
  for (int32_t j = 0; j < work.num_blocks() * kBlockPositions; j += kTileRows) {
    __m512i rows[kTileRows];
    for (int32_t i = 0; i < kTileRows; ++i) {
      __m512 scores = _mm512_mul_ps(_mm512_load_ps(scratch.scores[tile][j + i]), scale);
      if (j + i >= seen_by_all) {
        scores = _mm512_mask_mov_ps(unseen, _mm512_cmpgt_epi32_mask(visible, _mm512_set1_epi32(j + i)), scores);
      }
      largest = _mm512_max_ps(scores, largest);
      rows[i] = _mm512_castps_si512(scores);
    }
    transpose(rows);
    for (int32_t lane = 0; lane < work.queries_of(tile); ++lane) {
      _mm512_store_si512(scratch.turned[lane] + j, rows[lane]);
    }
  }
  return largest;
}

// exp(score - largest); 0 for a query that sees nothing yet, whose largest score is minus infinity like all others.
KIPP_INLINE __m512 weigh(const float* scores, __m512 largest, __mmask16 any_seen) {
  return _mm512_maskz_mov_ps(any_seen, exp({_mm512_sub_ps(_mm512_load_ps(scores), largest)}).v);
}

// Softmax of one tile of queries: weights as left operands, the largest scores and the sums of weights.
void weigh_tile(const Work& work, int32_t tile, Scratch& scratch, float* maximum, float* weight) {
  _mm512_storeu_ps(maximum + tile * kTileQueries, turn_scores(work, tile, scratch));
  for (int32_t lane = 0; lane < work.queries_of(tile); ++lane) {
    const float largest_score = maximum[tile * kTileQueries + lane];
    const __m512 largest = _mm512_set1_ps(largest_score);
    const auto any_seen = static_cast<__mmask16>(largest_score == kMinusInfinity ? 0 : 0xFFFF);
    __m512 low_sum = _mm512_setzero_ps();
    __m512 high_sum = _mm512_setzero_ps();
    for (int32_t block = 0; block < work.num_blocks(); ++block) {
      const float* scores = scratch.turned[lane] + ptrdiff_t{block} * kBlockPositions;
      __m512 low = weigh(scores, largest, any_seen);
      __m512 high = weigh(scores + kLanes, largest, any_seen);
      low_sum = _mm512_add_ps(low_sum, low);
      high_sum = _mm512_add_ps(high_sum, high);
      for (int32_t term = 0; term < kTerms; ++term) {
        _mm512_store_si512(scratch.weights[block][tile][term].words[lane], next_term(low, high));
      }
    }
    weight[tile * kTileQueries + lane] = total({_mm512_add_ps(low_sum, high_sum)});
  }
}

// Thirty-two channels of a block's V, two neighbouring positions to a word, zeros behind the last one seen. The first
// tile has the lower halves of each 128 bits, the second the upper ones: what two unpacking instructions give.
void pack_values(const Work& work, int32_t block, int32_t channel, Tile (&tiles)[2]) {
  const int32_t count = work.num_positions() - block * kBlockPositions;
  const auto row = [&](int32_t position) KIPP_INLINE_LAMBDA {
    return position < count ? _mm512_loadu_si512(work.vector(work.args.values, block, position) + channel)
                            : _mm512_setzero_si512();
  };
  for (int32_t pair = 0; pair < kTileRows; ++pair) {
    const __m512i even = row(2 * pair);
    const __m512i odd = row(2 * pair + 1);
    _mm512_store_si512(tiles[0].words[pair], _mm512_unpacklo_epi16(even, odd));
    _mm512_store_si512(tiles[1].words[pair], _mm512_unpackhi_epi16(even, odd));
  }
}

// Sums of 32 channels as pack_values ordered them, to their places.
void store_channels(const Tile& first, const Tile& second, int32_t num_queries, int32_t head_dim, float* sum) {
  const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  const __m512i high = _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
  for (int32_t q = 0; q < num_queries; ++q) {
    const __m512i a = _mm512_load_si512(first.words[q]);
    const __m512i b = _mm512_load_si512(second.words[q]);
    _mm512_storeu_si512(sum + ptrdiff_t{q} * head_dim, _mm512_permutex2var_epi32(a, low, b));
    _mm512_storeu_si512(sum + ptrdiff_t{q} * head_dim + kLanes, _mm512_permutex2var_epi32(a, high, b));
  }
}

// Weighted sums of 32 channels. Tiles 0 to 3 are sums, 4 and 5 weights, 6 and 7 V.
template <int32_t kTiles>
void add_values(const Work& work, int32_t channel, const UpcomingKeys& next, Scratch& scratch, float* sum) {
  tile_zero<0>();
  tile_zero<1>();
  tile_zero<2>();
  tile_zero<3>();
  for (int32_t block = 0; block < work.num_blocks(); ++block) {
    Tile(&values)[2] = scratch.values[block % 2];
    pack_values(work, block, channel, values);
    if constexpr (kTiles == 1) {
      prefetch_next(work, next, channel / kStepChannels * work.num_blocks() + block,
                    work.num_steps() * work.num_blocks());
    }
    tile_load<6>(&values[0], kTileBytes);
    tile_load<7>(&values[1], kTileBytes);
    for (int32_t term = 0; term < kTerms; ++term) {
      tile_load<4>(&scratch.weights[block][0][term], kTileBytes);
      tile_multiply<0, 4, 6>();
      tile_multiply<1, 4, 7>();
      if constexpr (kTiles == 2) {
        tile_load<5>(&scratch.weights[block][1][term], kTileBytes);
        tile_multiply<2, 5, 6>();
        tile_multiply<3, 5, 7>();
      }
    }
  }
  const int32_t head_dim = work.args.head_dim;
  Tile done[2];
  tile_store<0>(&done[0], kTileBytes);
  tile_store<1>(&done[1], kTileBytes);
  store_channels(done[0], done[1], smaller(kTileQueries, work.num_queries), head_dim, sum + channel);
  if constexpr (kTiles == 2) {
    tile_store<2>(&done[0], kTileBytes);
    tile_store<3>(&done[1], kTileBytes);
    store_channels(done[0], done[1], work.num_queries - kTileQueries, head_dim,
                   sum + ptrdiff_t{kTileQueries} * head_dim + channel);
  }
}

template <int32_t kTiles>
void attend_segment(const Work& work, const UpcomingKeys& next, float* buffer) {
  Scratch scratch;
  configure_whole_tiles();
  pack_queries(work, scratch);
  for (int32_t block = 0; block < work.num_blocks(); ++block) {
    score_block<kTiles>(work, block, scratch);
  }
  for (int32_t tile = 0; tile < kTiles; ++tile) {
    weigh_tile(work, tile, scratch, buffer, buffer + kMaxQueries);
  }
  for (int32_t channel = 0; channel < work.args.head_dim; channel += kStepChannels) {
    add_values<kTiles>(work, channel, next, scratch, buffer + 2 * kMaxQueries);
  }
  tile_release();
}

}  // namespace

void attend_amx(const AttendArgs& args, int32_t segment, const UpcomingKeys& next, float* buffer) {
  if (args.type != KvType::kBf16 || args.head_dim % kStepChannels != 0 || args.head_dim > kMaxHeadDim) {
    attend(args, segment, next, buffer);
    return;
  }
  const int32_t num_queries = args.num_tokens * args.group;
  const Work work{args, num_queries, (num_queries + kTileQueries - 1) / kTileQueries, segment * kSegmentBlocks,
                  args.first_position + args.num_tokens - segment * kSegmentPositions};
  (work.num_query_tiles == 1 ? attend_segment<1> : attend_segment<2>)(work, next, buffer);
}

}  // namespace kipp::cpu::KIPP_CPU_LEVEL
