// The arguments that kernels take by value (setBytes), shared by MSL and the host: 32-bit fields and no pointers, so
// that both lay them out alike. Strides and counts are in elements. Which buffer is bound where stands at each kernel.
#pragma once

#if !defined(__METAL_VERSION__)
#include <cstdint>
#endif

namespace kipp_metal {

struct EmbeddingArguments {
  uint32_t num_rows;
  uint32_t hidden;  // a multiple of 4
};

struct NormArguments {
  uint32_t num_rows;
  uint32_t x_stride;    // from one row to the next
  uint32_t out_stride;  // likewise
  float epsilon;
};

struct ProductArguments {
  uint32_t num_rows;    // of x and out
  uint32_t outputs;     // rows of the matrix
  uint32_t out_stride;  // from one row of out to the next
};

struct RopeArguments {
  uint32_t num_rows;
  uint32_t num_heads;
};

struct KvWriteArguments {
  uint32_t num_rows;
  uint32_t table_stride;  // of the block tables: [sequences][table_stride]
  uint32_t block_stride;  // from one block of the pool to the next, in bf16 elements
};

struct AttentionDecodeArguments {
  uint32_t num_rows;
  uint32_t table_stride;
  uint32_t block_stride;
  uint32_t max_splits;  // of the partial results: [num_rows][query_heads][max_splits]
};

struct AttentionPromptArguments {
  uint32_t num_tiles;
  uint32_t table_stride;
  uint32_t block_stride;
};

// Up to kPromptRows rows of one sequence, at consecutive positions.
struct AttentionTile {
  uint32_t first_row;  // of q and out
  uint32_t num_rows;
  uint32_t sequence;
  uint32_t first_position;
};

struct ElementArguments {
  uint32_t count;
};

struct GatherArguments {
  uint32_t num_rows;  // of out
  uint32_t width;     // a multiple of 4
};

struct ArgmaxArguments {
  uint32_t num_rows;
  uint32_t count;   // elements of a row that take part: ids from here on are padding
  uint32_t stride;  // from one row to the next
};

}  // namespace kipp_metal
