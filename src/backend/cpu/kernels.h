// The kernels of one instruction set, behind function pointers: kernels/*.cc is compiled once for each set, and
// table.cc there fills one Kernels for it. Formulas and shapes: model/operators.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kipp/precision.h"
#include "model/operators.h"

namespace kipp::cpu {

inline constexpr int32_t kNumPrecisions = 2;
inline constexpr int32_t kNumWeightTypes = 3;

// Part of a matrix product: out[t][r] for all tokens and rows [row_begin, row_end).
struct MultiplyArgs {
  const std::byte* weight;  // row 0 of the matrix
  const float* x;           // [num_tokens][columns]
  const std::byte* packed;  // x as pack() wrote it, or null where packed_bytes() is 0
  float* out;               // [num_tokens] rows of stride out_stride
  ptrdiff_t out_stride;
  int32_t num_tokens, columns;
  int32_t row_begin, row_end;  // row_begin is a multiple of row_tile
};

// Activations for `multiply`, in whatever form it reads fastest.
struct PackArgs {
  const float* x;  // [num_tokens][columns]
  int32_t num_tokens, columns;
  std::byte* out;  // [packed_bytes(num_tokens, columns)], aligned to 64
};

// How one level multiplies by weights of one type at one precision: one order of summation for any number of tokens.
struct MatmulKernel {
  const char* name;    // its class in a report, "matmul_q8_0_vnni"
  int32_t row_tile;    // rows that a task should have a multiple of
  int32_t token_tile;  // tokens that one call of pack should have a multiple of
  size_t (*packed_bytes)(int32_t num_tokens, int32_t columns);                 // 0: x is read as it is
  void (*pack)(const PackArgs& args, int32_t token_begin, int32_t token_end);  // token_begin: multiple of token_tile
  void (*multiply)(const MultiplyArgs& args);
};

// A tile of queries that share a KV head: num_tokens consecutive tokens, group query heads of each.
struct AttendArgs {
  const float* q;                  // first token's first query head of the group; heads are head_dim apart
  float* out;                      // likewise
  ptrdiff_t token_stride;          // of q and out
  const std::byte* const* keys;    // [ceil(end position / 32)] where each block's K of KV head 0 lies
  const std::byte* const* values;  // likewise V
  ptrdiff_t head_offset;           // bytes from there to this KV head
  ptrdiff_t position_stride;       // elements from one position's K (V) to the next's
  KvType type;
  int32_t first_position;  // of the first token
  int32_t num_tokens;      // num_tokens · group <= kMaxQueries
  int32_t group;           // query heads a KV head serves
  int32_t head_dim;
};

// K that the calling thread reads next, where that is known: a kernel that waits for memory asks for it early.
struct UpcomingKeys {
  const std::byte* const* keys = nullptr;  // the segment's blocks; head offset and strides: as AttendArgs has them
  ptrdiff_t head_offset = 0;
  int32_t num_blocks = 0;
};

inline constexpr int32_t kMaxQueries = 32;
// Positions whose softmax is one running sum; segments are merged in order, so that threads can share a long context.
inline constexpr int32_t kSegmentPositions = 512;
// Floats of one segment's partial result: for each query the largest score, the sum of weights, and head_dim sums.
constexpr int32_t partial_floats(int32_t head_dim) {
  return kMaxQueries * (head_dim + 2);
}

// What one thread does at most, for measuring limits (backend/cpu/probe.h).
enum class ProbeKind : uint8_t {
  kRead,      // reads data[0, bytes) in four streams
  kFp32,      // FP32 product-sums
  kBf16Dot,   // vdpbf16ps
  kBf16Tile,  // TDPBF16PS
  kInt8,      // vpdpbusd
};
struct ProbeArgs {
  ProbeKind kind;
  const std::byte* data;
  size_t bytes;
  int64_t rounds;  // of product-sums
};

struct Kernels {
  const char* isa;  // "avx2"
  MatmulKernel matmul[kNumWeightTypes][kNumPrecisions];
  void (*embedding)(const EmbeddingArgs& args);
  void (*rms_norm)(const RmsNormArgs& args);
  // x[t][h] turns by angles whose cosines and sines are given: [num_tokens][head_dim / 2] each.
  void (*rotate)(const RopeArgs& args, const float* cosines, const float* sines);
  void (*kv_write)(const KvWriteArgs& args);
  // Segment `segment` of the tile's positions into partial[partial_floats(head_dim)].
  void (*attend)(const AttendArgs& args, int32_t segment, const UpcomingKeys& next, float* partial);
  // Merges a later segment into `total`.
  void (*merge)(const AttendArgs& args, const float* partial, float* total);
  // The quotient: writes out.
  void (*finish)(const AttendArgs& args, const float* total);
  void (*swiglu)(const SwigluArgs& args);
  void (*residual_add)(const ResidualAddArgs& args);
  // Returns the bytes read or the operations done (a product and a sum are two); 0 if there is no such instruction.
  int64_t (*probe)(const ProbeArgs& args);
};

}  // namespace kipp::cpu
