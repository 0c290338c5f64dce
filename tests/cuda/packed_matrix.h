// A random matrix as an artifact stores it, as the device holds it, and as FP64 numbers.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "backend/cuda/kernels/matmul.h"
#include "backend/cuda/kernels/pack_weights.h"
#include "cuda/device_array.h"
#include "ops/operator_fixture.h"
#include "ops/stored_matrix.h"

namespace kipp::cuda {

struct PackedMatrix {
  StoredMatrix stored;
  DeviceArray<std::byte> tiles, scales;
  DeviceMatrix matrix;

  PackedMatrix(Draw& draw, WeightType type, int32_t rows, int32_t columns)
      : stored(draw_matrix(draw, type, rows, columns)),
        tiles(zeros(num_tiles(rows, columns) * tile_bytes(type))),
        scales(zeros(num_tiles(rows, columns) * tile_scale_bytes(type))) {
    const DeviceArray<std::byte> source(stored.data);
    const DeviceArray<uint32_t> largest(std::vector<uint32_t>{0});
    const auto place_columns = static_cast<int32_t>(padded(columns, kPaddedColumns));
    EXPECT_EQ(largest_weight({source.get(), type, int64_t{rows} * columns, largest.get()}, {}), cudaSuccess);
    EXPECT_EQ(pack_weights(
                  {source.get(), type, rows, columns, {}, tiles.get(), scales.get(), place_columns, largest.get()}, {}),
              cudaSuccess);
    matrix = {.type = type,
              .rows = rows,
              .columns = columns,
              .padded_rows = static_cast<int32_t>(padded(rows, kPaddedRows)),
              .padded_columns = place_columns,
              .tiles = tiles.get(),
              .scales = scales.get(),
              .fp16_scale = stored_scale(largest.read().front())};
  }

 private:
  static std::vector<std::byte> zeros(int64_t bytes) {
    return std::vector<std::byte>(static_cast<size_t>(bytes) + 16, std::byte{0});
  }
};

// FP16 bits of a float, to nearest even, and back.
inline uint16_t half_bits(float value) {
  return std::bit_cast<uint16_t>(static_cast<_Float16>(value));
}
inline float half_value(uint16_t bits) {
  return static_cast<float>(std::bit_cast<_Float16>(bits));
}

// Activations as two FP16 terms, with room for a multiple of 64 rows, of which those not named hold NaN.
struct SplitActivations {
  int32_t stride;
  DeviceArray<uint16_t> high, low;

  SplitActivations(const std::vector<float>& x, int32_t num_rows, int32_t columns)
      : stride(static_cast<int32_t>(padded(columns, kPaddedColumns))),
        high(split(x, num_rows, columns, stride, false)),
        low(split(x, num_rows, columns, stride, true)) {}

  Activations view() const {
    return {reinterpret_cast<const __half*>(high.get()), reinterpret_cast<const __half*>(low.get()), stride};
  }

 private:
  static std::vector<uint16_t> split(const std::vector<float>& x, int32_t num_rows, int32_t columns, int32_t stride,
                                     bool low) {
    constexpr uint16_t kHalfNan = 0x7E00;
    std::vector<uint16_t> terms(static_cast<size_t>(padded(num_rows, 64) * stride), kHalfNan);
    for (int32_t r = 0; r < num_rows; ++r) {
      for (int32_t c = 0; c < stride; ++c) {
        const float value = c < columns ? x[static_cast<size_t>(r * columns + c)] : 0.0F;
        const uint16_t first = half_bits(value);
        terms[static_cast<size_t>(r * stride + c)] = low ? half_bits(value - half_value(first)) : first;
      }
    }
    return terms;
  }
};

}  // namespace kipp::cuda
