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

// AFFINE4's quants enter as FP16's subnormal numbers (quantized_tiles.cuh), so all its sums carry this factor until
// the end: what they are multiplied by then.
constexpr float kAffine4SumScale = 0x1p24F;

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

// From the sums of the four lanes that share a group's activations to what multiply_group takes.
__device__ inline float sum_of_group(float t0, float t1, float t2, float t3) {
  return ((t0 + t1) + (t2 + t3)) * (1.0F / kAffine4SumScale);
}

// d += w · x over the 16 columns that pieces i and j of the fragments hold, x in `terms` FP16 terms.
template <int32_t terms>
__device__ inline void multiply_pieces(float (&d)[4], const WeightFragment& w, int32_t i, int32_t j, uint2 high,
                                       uint2 low) {
  mma_16x8x16(d, w.low_row[i], w.high_row[i], w.low_row[j], w.high_row[j], high.x, high.y);
  if constexpr (terms == 2) mma_16x8x16(d, w.low_row[i], w.high_row[i], w.low_row[j], w.high_row[j], low.x, low.y);
}

// sum += part · scale + x_sum · bias, for rows g and g + 8.
__device__ inline void add_scaled(float (&sum)[4], const float (&part)[4], float low_scale, float high_scale) {
  sum[0] = __fmaf_rn(part[0], low_scale, sum[0]);
  sum[1] = __fmaf_rn(part[1], low_scale, sum[1]);
  sum[2] = __fmaf_rn(part[2], high_scale, sum[2]);
  sum[3] = __fmaf_rn(part[3], high_scale, sum[3]);
}

// part += part16 / 16: what AFFINE4's odd pieces hold 16 times.
__device__ inline void add_sixteenth(float (&part)[4], const float (&part16)[4]) {
#pragma unroll
  for (int32_t i = 0; i < 4; ++i) part[i] = __fmaf_rn(part16[i], 0.0625F, part[i]);
}

// sum += w · x over a group of 32 columns, x in `terms` FP16 terms. x_sum: sum_of_group() of tokens 2t and 2t + 1 of
// the tile; only AFFINE4 reads it.
template <WeightType type, int32_t terms>
__device__ inline void multiply_group(float (&sum)[4], const WeightFragment& w, const ActivationFragment& x,
                                      float2 x_sum) {
  if constexpr (type == WeightType::kBf16) {
    multiply_pieces<terms>(sum, w, 0, 1, {x.high.x, x.high.y}, {x.low.x, x.low.y});
    multiply_pieces<terms>(sum, w, 2, 3, {x.high.z, x.high.w}, {x.low.z, x.low.w});
  } else if constexpr (type == WeightType::kQ8_0) {
    float part[4] = {};
    multiply_pieces<terms>(part, w, 0, 1, {x.high.x, x.high.y}, {x.low.x, x.low.y});
    multiply_pieces<terms>(part, w, 2, 3, {x.high.z, x.high.w}, {x.low.z, x.low.w});
    add_scaled(sum, part, w.low_scale, w.high_scale);
  } else {
    float part[4] = {};
    float part16[4] = {};  // odd pieces hold 16 times their quants
    multiply_pieces<terms>(part, w, 0, 2, {x.high.x, x.high.z}, {x.low.x, x.low.z});
    multiply_pieces<terms>(part16, w, 1, 3, {x.high.y, x.high.w}, {x.low.y, x.low.w});
    add_sixteenth(part, part16);
    add_scaled(sum, part, w.low_scale, w.high_scale);
    const float x_sums[4] = {x_sum.x, x_sum.y, x_sum.x, x_sum.y};
    add_scaled(sum, x_sums, w.low_bias, w.high_bias);
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
