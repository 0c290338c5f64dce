// From the rows of an artifact's matrix to the tiles that the kernels read (weight_tiles.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/weight_tiles.h"
#include "backend/cuda/launch.h"

namespace kipp::cuda {

// Where row r of the source goes. Several matrices with the same input lie in one: query, key and value one after the
// other, gate and up interleaved by eight rows, so that a thread that holds a gate's row also holds its up's.
struct RowPlace {
  int32_t first = 0;
  bool interleaved = false;  // row r goes to first + 16 · (r / 8) + r % 8

#if defined(__CUDACC__)
  __host__ __device__
#endif
      constexpr int32_t
      of(int32_t r) const {
    return first + (interleaved ? 16 * (r / 8) + r % 8 : r);
  }
};

struct PackArgs {
  const std::byte* source;  // [rows] rows of the artifact's bytes, on the device
  WeightType type;
  int32_t rows, columns;
  RowPlace place;
  std::byte* tiles;   // of the whole matrix, zeroed before the first call
  std::byte* scales;  // likewise; null for BF16
  int32_t padded_columns;
  const uint32_t* largest;  // BF16: of the whole matrix (largest_weight); weights are stored times stored_scale of it
};

// The power of two that brings the largest weight to [2^14, 2^15), below FP16's end. bits: of that weight as a float.
#if defined(__CUDACC__)
__host__ __device__
#endif
    constexpr float
    stored_scale(uint32_t bits) {
  const auto exponent = static_cast<int32_t>(bits >> 23) - 127;
  if (bits == 0 || exponent > 127) return 1.0F;  // all zero, or not finite: stays so
  int32_t wanted = 14 - exponent;
  float scale = 1.0F;
  for (; wanted > 0; --wanted) scale *= scale < 0x1p126F ? 2.0F : 1.0F;
  for (; wanted < 0; ++wanted) scale *= 0.5F;
  return scale;
}

// The largest |weight| of BF16 rows, or of quantised ones a bound of it; as the bits of a float, combined into *bits,
// which begins at 0. NaN and infinities come out largest.
struct LargestWeightArgs {
  const std::byte* source;
  WeightType type;
  int64_t count;  // weights: rows × columns
  uint32_t* bits;
};

cudaError_t pack_weights(const PackArgs& args, const LaunchContext& context);
cudaError_t largest_weight(const LargestWeightArgs& args, const LaunchContext& context);

// Tiles of a quantised matrix as FP16 tiles, rounded to nearest, times weight_scale: for the rows of prompts.
struct DequantizeArgs {
  DeviceMatrix matrix;
  std::byte* tiles;    // [padded_rows / 16][padded_columns / 64] FP16 tiles
  float weight_scale;  // a power of two
};
cudaError_t dequantize(const DequantizeArgs& args, const LaunchContext& context);

}  // namespace kipp::cuda
