// What lies between the projections of a layer and its attention: per-head norms of Q and K, rotary embedding, and the
// new positions' K and V into the pool.
#pragma once

#include <cstdint>

#include "backend/cuda/kernels/projected_heads.h"
#include "backend/cuda/launch.h"

namespace kipp::cuda {

// Where the rows of a step belong. All on the device.
struct RowPlaces {
  const int32_t* positions;     // [num_rows]
  const int32_t* sequences;     // [num_rows] rows of block_tables
  const int32_t* block_tables;  // [num_sequences][table_stride]
  int32_t table_stride;
};

// One layer of the pool: block b at layer + b · block_stride, [k|v][8][32][128] FP16 (paged_kv.h).
struct KvLayer {
  uint16_t* layer;
  int64_t block_stride;  // elements
};

// angles[r][i] = (cos, sin) of positions[r] · frequencies[i]; once a step.
struct RotaryAnglesArgs {
  const int32_t* positions;  // [num_rows]
  const float* frequencies;  // [64]
  float2* angles;            // [num_rows][64]
  int32_t num_rows;
};
cudaError_t rotary_angles(const RotaryAnglesArgs& args, const LaunchContext& context);

struct QueryKeyValueArgs {
  ProjectedHeads heads;
  RowPlaces places;
  KvLayer kv;
  float* q;  // [num_rows][num_query_heads][128]
  int32_t num_rows, num_query_heads;
};
cudaError_t query_key_value(const QueryKeyValueArgs& args, const LaunchContext& context);

}  // namespace kipp::cuda
