// The matrix unit's instruction that every NVIDIA GPU from sm_80 on has, asynchronous copies to shared memory, and what
// the kernels for generated rows share: how a lane streams weights and multiplies a group of 32 columns.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "backend/cuda/kernels/quantized_tiles.cuh"
#include "backend/cuda/kernels/weight_tiles.h"

namespace kipp::cuda {

__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

template <int32_t bytes>
__device__ inline void copy_async(void* shared, const void* global) {
  static_assert(bytes == 8 || bytes == 16);
  if constexpr (bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(shared)), "l"(global));
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(shared_address(shared)), "l"(global));
  }
}
__device__ inline void commit_copies() {
  asm volatile("cp.async.commit_group;");
}
// Waits until at most `pending` of this thread's groups are unfinished.
template <int32_t pending>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

// d += a · b: 16 × 8 in FP32, a 16 × 16 and b 16 × 8 in FP16.
__device__ inline void mma_16x8x16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                   uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// d = a · b.
__device__ inline void mma_from_zero(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                     uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, "
      "%10};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "f"(0.0F));
}

// A lane's part of 16 rows × 32 columns: lane 4g + t holds columns 8t … 8t+7 of rows g and g + 8, and what scales them.
// Which of the unit's columns they play does not matter as long as weights and activations agree.
struct WeightFragment {
  uint32_t low_row[4], high_row[4];  // rows g and g + 8, two FP16 each
  float low_scale, high_scale;       // quantised: of the group
  float low_bias, high_bias;         // AFFINE4: likewise
};

// The same of the activations of token g: two FP16 terms, whose sum is the activation.
struct ActivationFragment {
  uint4 high, low;
};

// The sum of a lane's 8 activations, always in this order.
__device__ inline float sum_of_activations(const ActivationFragment& x) {
  const uint32_t high[4] = {x.high.x, x.high.y, x.high.z, x.high.w};
  const uint32_t low[4] = {x.low.x, x.low.y, x.low.z, x.low.w};
  float sum = 0.0F;
#pragma unroll
  for (int32_t i = 0; i < 4; ++i) {
    const float2 a = __half22float2(*reinterpret_cast<const __half2*>(&high[i]));
    const float2 b = __half22float2(*reinterpret_cast<const __half2*>(&low[i]));
    sum += a.x + b.x;
    sum += a.y + b.y;
  }
  return sum;
}

// From the sums of the four lanes that share a group's activations to what multiply_tile takes.
__device__ inline float sum_of_group(float t0, float t1, float t2, float t3) {
  return (t0 + t1) + (t2 + t3);
}

// d = w · x over the first 16 of a group's 32 columns, for one term of x: the beginning of a sum.
__device__ inline void begin_half(float (&d)[4], const WeightFragment& w, const uint4& x) {
  mma_from_zero(d, w.low_row[0], w.high_row[0], w.low_row[1], w.high_row[1], x.x, x.y);
}
// d += w · x over one half of the columns.
__device__ inline void add_half(float (&d)[4], const WeightFragment& w, const uint4& x, int32_t half) {
  mma_16x8x16(d, w.low_row[2 * half], w.high_row[2 * half], w.low_row[2 * half + 1], w.high_row[2 * half + 1],
              half == 0 ? x.x : x.z, half == 0 ? x.y : x.w);
}
__device__ inline void add_group(float (&d)[4], const WeightFragment& w, const uint4& x) {
  add_half(d, w, x, 0);
  add_half(d, w, x, 1);
}

// The order in which every kernel of generated rows sums a slice of the columns up. BF16: the matrix unit sums the high
// terms of all columns, and the low terms, and at the end the two are added. Quantised: it sums a group's high terms,
// and its low ones; each is scaled and added in FP32, and then what the quants' zero stands for.
//
// A lane's sums of rows g and g + 8: of tokens 2t and 2t + 1, or of one token t if tokens are `paired`.
template <WeightType type, bool paired>
struct TileSums {
  float sum[paired ? 2 : 4] = {};

  __device__ float total(int32_t i) const { return sum[i]; }
};
template <>
struct TileSums<WeightType::kBf16, false> {
  float high[4] = {};
  float low[4] = {};

  __device__ float total(int32_t i) const { return high[i] + low[i]; }
};
// Columns 2t and 2t + 1 of the matrix unit are token t's high and low terms.
template <>
struct TileSums<WeightType::kBf16, true> {
  float parts[4] = {};

  __device__ float total(int32_t i) const { return parts[2 * i] + parts[2 * i + 1]; }
};

// sum += part · scale, for rows g and g + 8.
__device__ inline void add_scaled(float (&sum)[4], const float (&part)[4], float low_scale, float high_scale) {
#pragma unroll
  for (int32_t i = 0; i < 4; ++i) sum[i] = __fmaf_rn(part[i], i < 2 ? low_scale : high_scale, sum[i]);
}

// sums += w · x over a tile's 64 columns. x_sum: sum_of_group() of tokens 2t and 2t + 1; only AFFINE4 reads it.
template <WeightType type>
__device__ inline void multiply_tile(TileSums<type, false>& sums, const WeightFragment (&w)[2],
                                     const ActivationFragment (&x)[2], const float2 (&x_sum)[2]) {
#pragma unroll
  for (int32_t g = 0; g < 2; ++g) {
    if constexpr (type == WeightType::kBf16) {
      add_group(sums.high, w[g], x[g].high);
      add_group(sums.low, w[g], x[g].low);
    } else {
      float high[4];
      float low[4];
      begin_half(high, w[g], x[g].high);
      add_half(high, w[g], x[g].high, 1);
      begin_half(low, w[g], x[g].low);
      add_half(low, w[g], x[g].low, 1);
      add_scaled(sums.sum, high, w[g].low_scale, w[g].high_scale);
      add_scaled(sums.sum, low, w[g].low_scale, w[g].high_scale);
      if constexpr (type == WeightType::kAffine4Gs32) {
        add_scaled(sums.sum, {x_sum[g].x, x_sum[g].y, x_sum[g].x, x_sum[g].y}, w[g].low_bias, w[g].high_bias);
      }
    }
  }
}

// The same for up to four tokens, whose terms lie side by side in the matrix unit, which halves its instructions:
// column 2t of its eight holds token t's high terms, column 2t + 1 its low ones. x: of this lane's column.
template <WeightType type>
__device__ inline void multiply_tile(TileSums<type, true>& sums, const WeightFragment (&w)[2], const uint4 (&x)[2],
                                     const float (&x_sum)[2]) {
#pragma unroll
  for (int32_t g = 0; g < 2; ++g) {
    if constexpr (type == WeightType::kBf16) {
      add_group(sums.parts, w[g], x[g]);
    } else {
      float part[4];
      begin_half(part, w[g], x[g]);
      add_half(part, w[g], x[g], 1);
#pragma unroll
      for (int32_t i = 0; i < 2; ++i) {
        const float scale = i == 0 ? w[g].low_scale : w[g].high_scale;
        float& sum = sums.sum[i];
        sum = __fmaf_rn(part[2 * i + 1], scale, __fmaf_rn(part[2 * i], scale, sum));
        if constexpr (type == WeightType::kAffine4Gs32) {
          sum = __fmaf_rn(x_sum[g], i == 0 ? w[g].low_bias : w[g].high_bias, sum);
        }
      }
    }
  }
}

// What a lane needs of a group of 32 columns of a tile, as it lies there.
template <WeightType type>
struct PackedFragment {
  uint4 low, high;  // rows g and g + 8
};
template <>
struct PackedFragment<WeightType::kQ8_0> {
  uint4 quants;
  uint32_t scales;
};
template <>
struct PackedFragment<WeightType::kAffine4Gs32> {
  uint2 quants;
  uint2 scales;
};

// tile: of quantised weights, as weight_tiles.h says; scales: those of this lane's rows.
template <WeightType type>
__device__ inline PackedFragment<type> quantized_words(const std::byte* tile, const std::byte* scales, int32_t group) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  if constexpr (type == WeightType::kQ8_0) {
    return {*reinterpret_cast<const uint4*>(tile + (group * 32 + lane) * 16),
            *reinterpret_cast<const uint32_t*>(scales + group * 4)};
  } else {
    return {*reinterpret_cast<const uint2*>(tile + lane * 16 + group * 8),
            *reinterpret_cast<const uint2*>(scales + group * 8)};
  }
}

template <WeightType type>
__device__ inline WeightFragment unpacked(const PackedFragment<type>& packed) {
  WeightFragment w{};
  if constexpr (type == WeightType::kBf16) {
    w = {.low_row = {packed.low.x, packed.low.y, packed.low.z, packed.low.w},
         .high_row = {packed.high.x, packed.high.y, packed.high.z, packed.high.w},
         .low_scale = 1.0F,
         .high_scale = 1.0F,
         .low_bias = 0.0F,
         .high_bias = 0.0F};
  } else if constexpr (type == WeightType::kQ8_0) {
    q8_to_half({packed.quants.x, packed.quants.y}, w.low_row);
    q8_to_half({packed.quants.z, packed.quants.w}, w.high_row);
    const auto pair = *reinterpret_cast<const __half2*>(&packed.scales);
    w.low_scale = __low2float(pair);
    w.high_scale = __high2float(pair);
  } else {
    affine4_to_half(packed.quants.x, w.low_row);
    affine4_to_half(packed.quants.y, w.high_row);
    const auto low = *reinterpret_cast<const __half2*>(&packed.scales.x);
    const auto high = *reinterpret_cast<const __half2*>(&packed.scales.y);
    w.low_scale = __low2float(low);
    w.low_bias = __high2float(low);
    w.high_scale = __low2float(high);
    w.high_bias = __high2float(high);
  }
  return w;
}

template <WeightType type>
__device__ inline WeightFragment quantized_fragment(const std::byte* tile, const std::byte* scales, int32_t group) {
  return unpacked<type>(quantized_words<type>(tile, scales, group));
}

// The same of FP16 weights: this lane's piece of row g, and `distance` bytes on that of row g + 8.
__device__ inline WeightFragment fp16_fragment(const std::byte* piece, int32_t distance) {
  return unpacked<WeightType::kBf16>(
      {*reinterpret_cast<const uint4*>(piece), *reinterpret_cast<const uint4*>(piece + distance)});
}

// Which row of eight of an FP16 tile lanes 4g … 4g + 3 may hold instead of row g: neighbours g lie four rows apart,
// where the swizzle makes their pieces meet in no bank of shared memory.
__device__ inline int32_t row_of_lane(int32_t g) {
  return g / 2 + g % 2 * 4;
}

// One warp's tiles of 16 rows on their way to registers. Each lane copies what it itself will need, so that no other
// thread has to be waited for: stage() asks for a tile of 64 columns, fragment() reads one that has arrived.
template <WeightType type>
struct WeightStream {
  static constexpr int32_t kScaleBytes = type == WeightType::kBf16 ? 0 : (type == WeightType::kQ8_0 ? 8 : 16);
  static constexpr int32_t kLaneBytes = tile_bytes(type) / 32;
  static constexpr int32_t kStageBytes = 32 * (kLaneBytes + kScaleBytes);  // of one warp

  const std::byte* tiles;  // of this warp's rows
  const std::byte* scales;

  __device__ WeightStream(const DeviceMatrix& matrix, int32_t row_tile) {
    const int64_t first = int64_t{row_tile} * (matrix.padded_columns / kTileColumns);
    tiles = matrix.tiles + first * tile_bytes(type);
    scales = type == WeightType::kBf16 ? nullptr : matrix.scales + first * tile_scale_bytes(type);
  }

  // k: which tile along the columns. shared: kStageBytes of this warp.
  __device__ void stage(int32_t k, std::byte* shared) const {
    const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
    const std::byte* tile = tiles + int64_t{k} * tile_bytes(type);
    if constexpr (type == WeightType::kBf16) {
      const int32_t g = lane / 4;
#pragma unroll
      for (int32_t piece = 0; piece < 4; ++piece) {  // group 0: rows g, g + 8; group 1
        const int32_t chunk = (lane % 4 + piece / 2 * 4) ^ g;
        copy_async<16>(shared + (piece * 32 + lane) * 16, tile + piece % 2 * 1024 + g * 128 + chunk * 16);
      }
    } else {
#pragma unroll
      for (int32_t piece = 0; piece < kLaneBytes / 16; ++piece) {
        copy_async<16>(shared + (piece * 32 + lane) * 16, tile + (piece * 32 + lane) * 16);
      }
      copy_async<kScaleBytes>(shared + 32 * kLaneBytes + lane * kScaleBytes,
                              scales + int64_t{k} * tile_scale_bytes(type) + lane / 4 * kScaleBytes);
    }
  }

  // group: 0 or 1, which 32 of the tile's columns.
  __device__ static WeightFragment fragment(const std::byte* shared, int32_t group) {
    const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
    if constexpr (type == WeightType::kBf16) {
      return fp16_fragment(shared + (group * 64 + lane) * 16, 512);
    } else {
      return quantized_fragment<type>(shared, shared + 32 * kLaneBytes + lane * kScaleBytes, group);
    }
  }
};

}  // namespace kipp::cuda
