// One layer of the KV pool as attention's kernels read it.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "base/block_positions.h"
#include "kipp_checkpoints.h"

namespace kipp::cuda {

// A block holds [k|v][kNumKvHeads][kBlockPositions][kHeadDim] FP16: one head's keys (or values) of a block are 8 KiB in
// one piece. They were rounded to bf16 first, so they are what every backend stores (decision 0021). Position p of
// sequence s lies in block block_tables[s * table_stride + p / kBlockPositions]. Of nothing above the last position
// that a row attends to anything comes, and no entry of the table above that position's is read.
struct PagedKv {
  const uint16_t* pool;         // of this layer's first block; 16-byte aligned
  int64_t block_stride;         // elements from one block to the next; a multiple of 8
  const int32_t* block_tables;  // [num_sequences][table_stride]
  int32_t table_stride;
  int32_t num_blocks;  // of the layer
};

// Calls call(std::integral_constant<int, g>) for the number g of query heads that share a KV head, one of those that a
// checkpoint has: kernels are compiled for each. cudaErrorInvalidValue for any other number of heads.
template <typename Call>
cudaError_t for_query_group(int32_t num_query_heads, const Call& call) {
  switch (num_query_heads) {
    case 2 * kNumKvHeads: return call(std::integral_constant<int, 2>{});
    case 4 * kNumKvHeads: return call(std::integral_constant<int, 4>{});
    case 5 * kNumKvHeads: return call(std::integral_constant<int, 5>{});
    case 8 * kNumKvHeads: return call(std::integral_constant<int, 8>{});
    default: return cudaErrorInvalidValue;
  }
}

inline constexpr int32_t kKvHeadElements = kBlockPositions * kHeadDim;     // one head's keys in a block
inline constexpr int32_t kKvValuesOffset = kNumKvHeads * kKvHeadElements;  // from its keys to its values

}  // namespace kipp::cuda
