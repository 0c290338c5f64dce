// Causal grouped-query attention over paged K and V with a running softmax (Milakov & Gimelshein 2018; Dao et al.
// 2022). Its steps are fixed by positions alone: blocks of 32 within segments of 512. A query takes part in a block
// with the positions that it sees and no others, so that neither chunking nor what lies behind can change a bit of it.
#include "backend/cpu/kernels/level.h"
#include "backend/cpu/kernels/simd.h"

namespace kipp::cpu::KIPP_CPU_LEVEL {
namespace {

constexpr float kMinusInfinity = -__builtin_inff();

// Partial results of kMaxQueries queries, as they lie in a buffer of partial_floats(head_dim).
struct Partial {
  float* maximum;  // [kMaxQueries]
  float* weight;   // [kMaxQueries] sum of exp(score - maximum)
  float* sum;      // [kMaxQueries][head_dim] of values, so weighted

  explicit Partial(float* buffer) : maximum(buffer), weight(buffer + kMaxQueries), sum(buffer + 2 * kMaxQueries) {}
};

KIPP_INLINE float exp_of(float x) {
  float lanes[kLanes];
  store(lanes, exp(broadcast(x)));
  return lanes[0];
}

// Queries [begin, end) of the tile and the first `count` positions of one block.
struct BlockWork {
  const AttendArgs& args;
  int32_t block;  // index into args.keys and args.values
  int32_t begin, end;
  int32_t count;
  const float* const* queries;  // [kMaxQueries] of the tile
  // Few queries wait for memory: they ask for V of this block and for this K, which comes after it.
  const std::byte* next_keys;  // null: no asking

  template <typename Element>
  const Element* vector(const std::byte* const* blocks, int32_t position) const {
    return reinterpret_cast<const Element*>(blocks[block] + args.head_offset) + position * args.position_stride;
  }
};

template <typename Element>
KIPP_INLINE void ask_ahead(const BlockWork& work, int32_t position) {
  const auto bytes = static_cast<int32_t>(sizeof(Element)) * work.args.head_dim;
  prefetch(work.vector<Element>(work.args.values, position), bytes);
  prefetch(reinterpret_cast<const Element*>(work.next_keys) + position * work.args.position_stride, bytes);
}

using Scores = float[kMaxQueries][kBlockPositions];

// kHeadDim 0: args.head_dim, any number.
template <typename Element, int32_t kHeadDim>
void score(const BlockWork& work, float scale, Scores& scores) {
  constexpr int32_t kRegisters = kHeadDim / kLanes;
  for (int32_t j = 0; j < work.count; ++j) {
    const Element* key = work.vector<Element>(work.args.keys, j);
    if (work.next_keys != nullptr) {
      ask_ahead<Element>(work, j);
    }
    if constexpr (kHeadDim > 0) {
      F16 wide[size_t{kRegisters}];
      for (int32_t i = 0; i < kRegisters; ++i) {
        wide[i] = widen(key + i * kLanes);
      }
      for (int32_t q = work.begin; q < work.end; ++q) {
        const float* query = work.queries[q];
        F16 sum = zero();
        for (int32_t i = 0; i < kRegisters; ++i) {
          sum = fma(wide[i], load(query + i * kLanes), sum);
        }
        scores[q][j] = total(sum) * scale;
      }
    } else {
      const int32_t whole = work.args.head_dim / kLanes * kLanes;
      const int32_t rest = work.args.head_dim - whole;
      for (int32_t q = work.begin; q < work.end; ++q) {
        const float* query = work.queries[q];
        F16 sum = zero();
        for (int32_t d = 0; d < whole; d += kLanes) {
          sum = fma(widen(key + d), load(query + d), sum);
        }
        if (rest > 0) {
          sum = fma(widen_some(key + whole, rest), load_some(query + whole, rest), sum);
        }
        scores[q][j] = total(sum) * scale;
      }
    }
  }
}

// Scores become weights; returns by how much the query's earlier sums shrink.
KIPP_INLINE float reweigh(float* scores, int32_t count, float& maximum, float& weight) {
  float largest = maximum;
  for (int32_t j = 0; j < count; ++j) {
    largest = scores[j] > largest ? scores[j] : largest;
  }
  for (int32_t j = count; j < kBlockPositions; ++j) {
    scores[j] = kMinusInfinity;
  }
  const F16 low = exp(sub(load(scores), broadcast(largest)));
  const F16 high = exp(sub(load(scores + kLanes), broadcast(largest)));
  store(scores, low);
  store(scores + kLanes, high);
  const float shrink = exp_of(maximum - largest);
  weight = weight * shrink + total(add(low, high));
  maximum = largest;
  return shrink;
}

constexpr int32_t kTogether = 8;  // queries whose sums stay in registers while V is read once for all of them

// Lanes [d, d + 16) of sums of up to kTogether queries from `begin`; width < 16 at the end of an odd head_dim.
template <typename Element, int32_t kQueries>
KIPP_INLINE void add_values(const BlockWork& work, const Scores& weights, const float* shrink, int32_t begin, int32_t d,
                            int32_t width, float* sum) {
  const int32_t head_dim = work.args.head_dim;
  F16 sums[size_t{kQueries}];
  for (int32_t q = 0; q < kQueries; ++q) {
    const float* old = sum + ptrdiff_t{begin + q} * head_dim + d;
    sums[q] = mul(width == kLanes ? load(old) : load_some(old, width), broadcast(shrink[begin + q]));
  }
  for (int32_t j = 0; j < work.count; ++j) {
    const Element* value = work.vector<Element>(work.args.values, j) + d;
    const F16 wide = width == kLanes ? widen(value) : widen_some(value, width);
    for (int32_t q = 0; q < kQueries; ++q) {
      sums[q] = fma(broadcast(weights[begin + q][j]), wide, sums[q]);
    }
  }
  for (int32_t q = 0; q < kQueries; ++q) {
    float* target = sum + ptrdiff_t{begin + q} * head_dim + d;
    if (width == kLanes) {
      store(target, sums[q]);
    } else {
      store_some(target, sums[q], width);
    }
  }
}

template <typename Element, int32_t kQueries>
void add_values(const BlockWork& work, const Scores& weights, const float* shrink, int32_t begin, float* sum) {
  for (int32_t d = 0; d < work.args.head_dim; d += kLanes) {
    add_values<Element, kQueries>(work, weights, shrink, begin, d, smaller(kLanes, work.args.head_dim - d), sum);
  }
}

template <typename Element>
void attend_block(const BlockWork& work, const Partial& partial) {
  const float scale = 1.0F / __builtin_sqrtf(static_cast<float>(work.args.head_dim));
  alignas(64) Scores scores;
  float shrink[kMaxQueries];
  if (work.args.head_dim == 128) {
    score<Element, 128>(work, scale, scores);
  } else {
    score<Element, 0>(work, scale, scores);
  }
  for (int32_t q = work.begin; q < work.end; ++q) {
    shrink[q] = reweigh(scores[q], work.count, partial.maximum[q], partial.weight[q]);
  }
  int32_t q = work.begin;
  for (; q + kTogether <= work.end; q += kTogether) {
    add_values<Element, kTogether>(work, scores, shrink, q, partial.sum);
  }
  for (; q + 2 <= work.end; q += 2) {
    add_values<Element, 2>(work, scores, shrink, q, partial.sum);
  }
  for (; q < work.end; ++q) {
    add_values<Element, 1>(work, scores, shrink, q, partial.sum);
  }
}

template <typename Element>
void attend_segment(const AttendArgs& args, int32_t segment, const UpcomingKeys& next, const Partial& partial) {
  const int32_t first_block = segment * (kSegmentPositions / kBlockPositions);
  const int32_t end = smaller((segment + 1) * kSegmentPositions, args.first_position + args.num_tokens);
  const float* queries[kMaxQueries];
  for (int32_t q = 0; q < args.num_tokens * args.group; ++q) {
    queries[q] = args.q + q / args.group * args.token_stride + ptrdiff_t{q % args.group} * args.head_dim;
  }
  constexpr int32_t kFewQueries = 8;
  const int32_t num_queries = args.num_tokens * args.group;
  for (int32_t b = first_block; b * kBlockPositions < end; ++b) {
    const int32_t begin = b * kBlockPositions;
    const std::byte* next_keys = nullptr;
    if (num_queries <= kFewQueries && begin + kBlockPositions < end) {
      next_keys = args.keys[b + 1] + args.head_offset;
    } else if (num_queries <= kFewQueries && next.num_blocks > 0) {
      next_keys = next.keys[0] + next.head_offset;
    }
    if (begin + kBlockPositions <= args.first_position + 1) {  // the whole block is visible to every token
      attend_block<Element>({args, b, 0, num_queries, kBlockPositions, queries, next_keys}, partial);
      continue;
    }
    for (int32_t t = larger(0, begin - args.first_position); t < args.num_tokens; ++t) {
      const int32_t count = smaller(kBlockPositions, args.first_position + t + 1 - begin);
      attend_block<Element>({args, b, t * args.group, (t + 1) * args.group, count, queries, next_keys}, partial);
    }
  }
}

}  // namespace

void attend(const AttendArgs& args, int32_t segment, const UpcomingKeys& next, float* buffer) {
  const Partial partial(buffer);
  for (int32_t q = 0; q < args.num_tokens * args.group; ++q) {
    partial.maximum[q] = kMinusInfinity;
    partial.weight[q] = 0.0F;
    for (int32_t d = 0; d < args.head_dim; ++d) {
      partial.sum[ptrdiff_t{q} * args.head_dim + d] = 0.0F;
    }
  }
  if (args.type == KvType::kBf16) {
    attend_segment<uint16_t>(args, segment, next, partial);
  } else {
    attend_segment<float>(args, segment, next, partial);
  }
}

void merge(const AttendArgs& args, const float* later, float* buffer) {
  const Partial total(buffer);
  const Partial partial(const_cast<float*>(later));
  for (int32_t q = 0; q < args.num_tokens * args.group; ++q) {
    if (partial.weight[q] == 0.0F && partial.maximum[q] == kMinusInfinity) {
      continue;  // the segment lies behind this token
    }
    const float largest = partial.maximum[q] > total.maximum[q] ? partial.maximum[q] : total.maximum[q];
    const float shrink = exp_of(total.maximum[q] - largest);
    const float later_shrink = exp_of(partial.maximum[q] - largest);
    total.maximum[q] = largest;
    total.weight[q] = total.weight[q] * shrink + partial.weight[q] * later_shrink;
    for (int32_t d = 0; d < args.head_dim; ++d) {
      const ptrdiff_t i = ptrdiff_t{q} * args.head_dim + d;
      total.sum[i] = total.sum[i] * shrink + partial.sum[i] * later_shrink;
    }
  }
}

void finish(const AttendArgs& args, const float* buffer) {
  const Partial total(const_cast<float*>(buffer));
  for (int32_t q = 0; q < args.num_tokens * args.group; ++q) {
    float* out = args.out + q / args.group * args.token_stride + ptrdiff_t{q % args.group} * args.head_dim;
    for (int32_t d = 0; d < args.head_dim; ++d) {
      out[d] = total.sum[ptrdiff_t{q} * args.head_dim + d] / total.weight[q];
    }
  }
}

}  // namespace kipp::cpu::KIPP_CPU_LEVEL
