// Tensor maps: what Hopper's copy engine must know of an array to fetch boxes of it. Made on the host, passed to
// kernels as parameters.
#pragma once

#include <cuda.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

namespace kipp::cuda {

// x [rows][stride] of FP16, in boxes of box_rows rows by 64 columns. The 16-byte piece c of a box's row r arrives at
// piece c ^ (r % 8), as the matrix unit wants it. What sticks out arrives as zeros.
CUresult make_row_map(CUtensorMap& map, const __half* x, int32_t rows, int32_t stride, int32_t box_rows);

// Records of record_bytes (a multiple of 16, at most 2,048), [rows][columns] of them, in boxes of a column's box_rows
// rows, as they lie. What sticks out arrives as zeros.
CUresult make_record_map(CUtensorMap& map, const std::byte* records, int32_t record_bytes, int32_t rows,
                         int32_t columns, int32_t box_rows);

}  // namespace kipp::cuda
