// What host and kernels agree on: argument structs (setBytes at the index that a kernel's file names) and the sizes
// that kernels are compiled for. Plain 32- and 64-bit numbers, C++14, included by Metal and by the host. Strides and
// counts are in elements; every row stride is a multiple of 4, so that rows of floats begin at 16 bytes.
#pragma once

#ifdef __METAL_VERSION__
#define KIPP_METAL_CONSTANT constant constexpr
#else
#include <cstdint>
#define KIPP_METAL_CONSTANT constexpr
#endif

namespace kipp_metal {

KIPP_METAL_CONSTANT uint32_t kSimdLanes = 32;
KIPP_METAL_CONSTANT uint32_t kHeadWidth = 128;         // head_dim of every checkpoint
KIPP_METAL_CONSTANT uint32_t kKvHeads = 8;             // of every checkpoint
KIPP_METAL_CONSTANT uint32_t kPositionsPerBlock = 32;  // of the KV pool

// Elementwise kernels: threadgroups of so many threads, each with four neighbouring elements.
KIPP_METAL_CONSTANT uint32_t kElementwiseThreads = 256;
// rms_norm: one threadgroup a row.
KIPP_METAL_CONSTANT uint32_t kNormThreads = 256;
// rms_norm_heads: one simdgroup a row of kHeadWidth elements.
KIPP_METAL_CONSTANT uint32_t kHeadNormThreads = 128;

// matvec: a threadgroup computes so many rows of the matrix, for up to kMatvecTokens tokens that read it once.
KIPP_METAL_CONSTANT uint32_t kMatvecThreads = 64;
KIPP_METAL_CONSTANT uint32_t kMatvecRowsPerSimdgroup = 4;
KIPP_METAL_CONSTANT uint32_t kMatvecRows = kMatvecThreads / kSimdLanes * kMatvecRowsPerSimdgroup;
KIPP_METAL_CONSTANT uint32_t kMatvecTokens = 8;

// matmul: a threadgroup computes a tile of tokens × rows and walks over the columns by steps; the padding keeps the
// rows of a tile out of each other's memory banks.
KIPP_METAL_CONSTANT uint32_t kMatmulThreads = 128;
KIPP_METAL_CONSTANT uint32_t kMatmulTokens = 32;
KIPP_METAL_CONSTANT uint32_t kMatmulRows = 64;
KIPP_METAL_CONSTANT uint32_t kMatmulStep = 32;
KIPP_METAL_CONSTANT uint32_t kMatmulStride = kMatmulStep + 4;
KIPP_METAL_CONSTANT uint32_t kMatmulOutStride = kMatmulRows + 4;
KIPP_METAL_CONSTANT uint32_t kMatmulThreadgroupBytes = (kMatmulTokens + kMatmulRows) * kMatmulStride * 4;

// attention_decode: a threadgroup takes one generated row, one KV head and kSplitPositions positions. Where a split
// begins depends on the position alone, so neither mates nor the context that others have change a row's bits.
KIPP_METAL_CONSTANT uint32_t kDecodeThreads = 128;
KIPP_METAL_CONSTANT uint32_t kSplitPositions = 256;
KIPP_METAL_CONSTANT uint32_t kMaxQueryGroup = 8;  // query heads that share a KV head
KIPP_METAL_CONSTANT uint32_t kDecodeSimdgroups = kDecodeThreads / kSimdLanes;
// Queries of the group, then the simdgroups' sums of values, their maxima and their sums of weights.
KIPP_METAL_CONSTANT uint32_t kDecodeThreadgroupBytes =
    4 * (kMaxQueryGroup * kHeadWidth + kDecodeSimdgroups * kMaxQueryGroup * (kHeadWidth + 2));
KIPP_METAL_CONSTANT uint32_t kMergeThreads = 128;

// attention_prompt: a threadgroup takes one tile of tokens and one query head; a simdgroup takes eight of the tokens.
KIPP_METAL_CONSTANT uint32_t kPromptThreads = 128;
KIPP_METAL_CONSTANT uint32_t kPromptTokens = 32;
KIPP_METAL_CONSTANT uint32_t kPromptStride = kHeadWidth + 4;               // of keys, values and queries in a tile
KIPP_METAL_CONSTANT uint32_t kPromptScoreStride = kPositionsPerBlock + 4;  // of scores
KIPP_METAL_CONSTANT uint32_t kPromptThreadgroupBytes =
    4 * (kPositionsPerBlock * kPromptStride + kPromptTokens * kPromptScoreStride + kPromptTokens * 8);

// argmax: one threadgroup a row of logits.
KIPP_METAL_CONSTANT uint32_t kArgmaxThreads = 256;

struct EmbeddingArgs {
  uint32_t num_rows, hidden;
};

struct RmsNormArgs {
  uint32_t num_rows;
  uint32_t x_stride, out_stride;
  float epsilon;
};

struct MatvecArgs {
  uint32_t rows;  // of the matrix
  uint32_t x_stride, out_stride;
};

struct MatmulArgs {
  uint32_t num_tokens;
  uint32_t rows;  // of the matrix
  uint32_t x_stride, out_stride;
};

struct RopeArgs {
  uint32_t num_rows, num_heads, x_stride;
};

// Where the rows of a step belong in one layer of the KV pool. Block b begins block_stride · b elements behind the
// pointer that is bound, and holds [k|v][kKvHeads][kPositionsPerBlock][kHeadWidth] bf16.
struct KvWriteArgs {
  uint64_t block_stride;
  uint32_t num_rows;
  uint32_t k_stride, v_stride;
  uint32_t table_stride;  // from one sequence's row of block_tables to the next's
};

struct AttentionDecodeArgs {
  uint64_t block_stride;
  uint32_t table_stride;
  uint32_t num_rows;
  uint32_t max_splits;  // splits that partials has room for: ceil((largest position + 1) / kSplitPositions)
  uint32_t q_stride, out_stride;
  uint32_t unused;
};

// A run of tokens of one sequence; at most kPromptTokens of them.
struct PromptTile {
  uint32_t first_row;  // of the step
  uint32_t first_position;
  uint32_t num_tokens;
  uint32_t sequence;  // row of block_tables
};

struct AttentionPromptArgs {
  uint64_t block_stride;
  uint32_t table_stride;
  uint32_t q_stride, out_stride;
  uint32_t unused;
};

struct StatelessAttentionArgs {
  uint32_t num_tokens;
  uint32_t q_stride, kv_stride, out_stride;
};

struct ElementwiseArgs {
  uint32_t count;  // a multiple of 4
};

struct SwigluArgs {
  uint32_t num_rows, width;  // width: a multiple of 4
  uint32_t gate_stride, up_stride, out_stride;
};

struct ArgmaxArgs {
  uint32_t num_rows, width, stride;
};

// finite: 0 where a logit of the row is NaN or infinite; index is 0xFFFFFFFF then.
struct ArgmaxResult {
  uint32_t index;
  float value;
  uint32_t finite;
};

// What kipp_probe_geometry finds: the sizes that the kernels were compiled for. The host compares them with its own.
struct Geometry {
  uint32_t simd_lanes, threads;
  uint32_t matvec_rows, matvec_tokens;
  uint32_t matmul_tokens, matmul_rows, matmul_threadgroup_bytes;
  uint32_t split_positions, decode_threadgroup_bytes;
  uint32_t prompt_tokens, prompt_threadgroup_bytes;
  uint32_t kv_write_args_bytes, decode_args_bytes, prompt_args_bytes;
};

}  // namespace kipp_metal
