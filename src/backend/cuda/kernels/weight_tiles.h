// How a matrix lies in device memory: tiles of 16 rows × 64 columns, in the order in which the kernels read them.
//
// Rows are padded with zeros to a multiple of 128 and columns to one of 256, so that no kernel has a ragged edge of
// weights. Tile (r, k) begins at (r · columns / 64 + k) · tile bytes: the tiles of 16 rows follow each other along the
// columns, so that a warp that walks them reads one stream.
//
// FP16 (BF16 matrices, times a power of two so that nothing leaves FP16's range): two groups of 8 rows, each 8 × 128
// bytes; the 16-byte piece c of row r lies at piece c ^ r. That is the 128-byte swizzle that Hopper's matrix unit reads
// from shared memory, so a tile is copied there as it is.
//
// Q8_0 and AFFINE4_GS32: for each lane of a warp what its matrix fragments need. Lane 4·g + t holds of rows g and g + 8
// the columns 8t … 8t+7 of each group of 32.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/weights.h"

namespace kipp::cuda {

inline constexpr int32_t kTileRows = 16;
inline constexpr int32_t kTileColumns = 64;
inline constexpr int32_t kPaddedRows = 128;
inline constexpr int32_t kNumSlices =
    4;  // parts of the columns that generated rows are summed over, one after the other
inline constexpr int32_t kPaddedColumns = kNumSlices * kTileColumns;

// Of one tile: weights, then the scales of its groups.
inline constexpr int32_t kFp16TileBytes = 2048;
inline constexpr int32_t kQ8TileBytes = 1024;
inline constexpr int32_t kQ8ScaleBytes = 64;  // [g]{row g, row g+8 of group 0, the same of group 1}, fp16
inline constexpr int32_t kAffine4TileBytes = 512;
inline constexpr int32_t kAffine4ScaleBytes = 128;  // [g] the same of (scale, bias)

constexpr int64_t padded(int64_t count, int64_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

// A matrix in device memory.
struct DeviceMatrix {
  WeightType type = WeightType::kBf16;
  int32_t rows = 0, columns = 0;  // of the matrix itself
  int32_t padded_rows = 0, padded_columns = 0;
  const std::byte* tiles = nullptr;   // [padded_rows / 16][padded_columns / 64] tiles
  const std::byte* scales = nullptr;  // the same of scales; null for BF16
  // A power of two that FP16 tiles hold their weights times of: those of BF16 matrices, and what quantised ones are
  // dequantised to.
  float fp16_scale = 1.0F;
};

constexpr int32_t tile_bytes(WeightType type) {
  switch (type) {
    case WeightType::kBf16: return kFp16TileBytes;
    case WeightType::kQ8_0: return kQ8TileBytes;
    case WeightType::kAffine4Gs32: return kAffine4TileBytes;
  }
  return 0;
}

constexpr int32_t tile_scale_bytes(WeightType type) {
  switch (type) {
    case WeightType::kBf16: return 0;
    case WeightType::kQ8_0: return kQ8ScaleBytes;
    case WeightType::kAffine4Gs32: return kAffine4ScaleBytes;
  }
  return 0;
}

constexpr int64_t num_tiles(int64_t rows, int64_t columns) {
  return padded(rows, kPaddedRows) / kTileRows * (padded(columns, kPaddedColumns) / kTileColumns);
}

}  // namespace kipp::cuda
