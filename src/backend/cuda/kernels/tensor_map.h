// Tensor maps: what Hopper's copy engine must know of an array to fetch boxes of it. Made on the host, passed to
// kernels as parameters.
#pragma once

#include <cuda.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/paged_kv.h"

namespace kipp::cuda {

// Whether the driver can make them; nothing else is said by an error below, if the arguments are right.
bool has_tensor_maps();

// x [rows][stride] of FP16, in boxes of box_rows rows by 64 columns. The 16-byte piece c of a box's row r arrives at
// piece c ^ (r % 8), as the matrix unit wants it. What sticks out arrives as zeros.
CUresult make_row_map(CUtensorMap& map, const __half* x, int32_t rows, int32_t stride, int32_t box_rows);

// out [rows][stride], of which `width` columns are written, in boxes of `box_rows` rows of 64 bytes. Piece c of 16
// bytes of a box's row r is read at piece c ^ (r / 2 % 4). Width and stride are multiples of 16 bytes; what sticks out
// is not written.
CUresult make_output_map(CUtensorMap& map, const float* out, int32_t rows, int32_t width, int32_t stride,
                         int32_t box_rows);
CUresult make_output_map(CUtensorMap& map, const __half* out, int32_t rows, int32_t width, int32_t stride,
                         int32_t box_rows);

// One layer of a KV pool, in boxes of half a head's elements of one block: [k|v][kv head][position] by 64 dimensions.
// Piece c of 16 bytes of position r arrives at piece c ^ (r % 8).
CUresult make_kv_map(CUtensorMap& map, const PagedKv& kv);

// Records of record_bytes (a multiple of 16, at most 2,048), [rows][columns] of them, in boxes of a column's box_rows
// rows, as they lie. What sticks out arrives as zeros.
CUresult make_record_map(CUtensorMap& map, const std::byte* records, int32_t record_bytes, int32_t rows,
                         int32_t columns, int32_t box_rows);

}  // namespace kipp::cuda
