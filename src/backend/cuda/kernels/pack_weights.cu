// Runs once for each matrix when a model is loaded, and `dequantize` once a step of a prompt: both bound by memory.
#include <cuda_fp16.h>

#include "backend/cuda/kernels/pack_weights.h"
#include "backend/cuda/kernels/quantized_tiles.cuh"

namespace kipp::cuda {
namespace {

constexpr int32_t kThreads = 256;
constexpr int32_t kGroup = 32;

__device__ float bf16_at(const std::byte* source, int64_t index) {
  return __uint_as_float(static_cast<uint32_t>(reinterpret_cast<const uint16_t*>(source)[index]) << 16);
}

__device__ std::byte* tile_of(std::byte* base, int32_t bytes, int32_t padded_columns, int32_t row, int32_t column) {
  const int64_t tile = int64_t{row / kTileRows} * (padded_columns / kTileColumns) + column / kTileColumns;
  return base + tile * bytes;
}

// One thread for 8 columns of a row: a 16-byte piece.
__global__ void pack_bf16_kernel(PackArgs args) {
  const int64_t pieces = int64_t{args.rows} * (args.columns / 8);
  const int64_t piece = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (piece >= pieces) return;
  const auto row = static_cast<int32_t>(piece / (args.columns / 8));
  const auto column = static_cast<int32_t>(piece % (args.columns / 8)) * 8;
  const float scale = stored_scale(*args.largest);
  __half values[8];
  for (int32_t i = 0; i < 8; ++i) {
    values[i] = __float2half_rn(bf16_at(args.source, int64_t{row} * args.columns + column + i) * scale);
  }
  const int32_t to = args.place.of(row);
  std::byte* tile = tile_of(args.tiles, kFp16TileBytes, args.padded_columns, to, column);
  const int32_t in_tile = to % kTileRows;
  const int32_t position = (column % kTileColumns / 8) ^ (in_tile % 8);
  *reinterpret_cast<uint4*>(tile + in_tile / 8 * 1024 + in_tile % 8 * 128 + position * 16) =
      *reinterpret_cast<const uint4*>(values);
}

// One thread for a block of 32 weights.
template <WeightType type>
__global__ void pack_quantized_kernel(PackArgs args) {
  const int64_t blocks = int64_t{args.rows} * (args.columns / kGroup);
  const int64_t block = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (block >= blocks) return;
  const auto row = static_cast<int32_t>(block / (args.columns / kGroup));
  const auto column = static_cast<int32_t>(block % (args.columns / kGroup)) * kGroup;
  const int32_t to = args.place.of(row);
  const int32_t in_tile = to % kTileRows;
  const int32_t group = column % kTileColumns / kGroup;
  std::byte* tile = tile_of(args.tiles, tile_bytes(type), args.padded_columns, to, column);
  std::byte* scales = tile_of(args.scales, tile_scale_bytes(type), args.padded_columns, to, column);
  const int32_t scale_index = in_tile % 8 * 4 + group * 2 + in_tile / 8;
  if constexpr (type == WeightType::kQ8_0) {
    const std::byte* from = args.source + block * 34;
    reinterpret_cast<uint16_t*>(scales)[scale_index] = *reinterpret_cast<const uint16_t*>(from);
    for (int32_t i = 0; i < kGroup; ++i) {
      q8_place(tile, in_tile, group, i) = from[2 + i];
    }
  } else {
    const std::byte* from = args.source + block * 20;
    reinterpret_cast<uint32_t*>(scales)[scale_index] = *reinterpret_cast<const uint32_t*>(from);
    uint32_t words[4] = {};
    for (int32_t i = 0; i < kGroup; ++i) {
      const auto byte = static_cast<uint32_t>(from[4 + i % 16]);
      const uint32_t nibble = i < 16 ? byte & 15U : byte >> 4;
      words[i / 8] |= nibble << affine4_shift(i % 8);
    }
    for (int32_t t = 0; t < 4; ++t) {
      affine4_word(tile, in_tile, group, t) = words[t];
    }
  }
}

__global__ void largest_weight_kernel(LargestWeightArgs args) {
  uint32_t largest = 0;
  const int64_t count = args.type == WeightType::kBf16 ? args.count : args.count / kGroup;
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += stride) {
    float value = 0.0F;
    if (args.type == WeightType::kBf16) {
      value = bf16_at(args.source, i);
    } else if (args.type == WeightType::kQ8_0) {
      value = 127.0F * __half2float(*reinterpret_cast<const __half*>(args.source + i * 34));
    } else {
      const auto* pair = reinterpret_cast<const __half*>(args.source + i * 20);
      value = fabsf(15.0F * __half2float(pair[0])) + fabsf(__half2float(pair[1]));
    }
    largest = max(largest, __float_as_uint(fabsf(value)));
  }
  largest = __reduce_max_sync(0xFFFFFFFFU, largest);
  if (threadIdx.x % 32 == 0) atomicMax(args.bits, largest);
}

// One thread for the 8 columns of a row that a lane holds, which is one 16-byte piece of the FP16 tile.
template <WeightType type>
__global__ void dequantize_kernel(DequantizeArgs args) {
  wait_for_previous();
  start_next();
  const int64_t pieces = int64_t{args.matrix.padded_rows} * (args.matrix.padded_columns / 8);
  const int64_t piece = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (piece >= pieces) return;
  // Pieces in the order of the FP16 tiles, so that writes are contiguous.
  const int64_t tile = piece / 128;
  const auto in_tile = static_cast<int32_t>(piece % 128);
  const int32_t row = in_tile / 8;
  const int32_t chunk = (in_tile % 8) ^ (row % 8);
  const int32_t group = chunk / 4;
  const int32_t t = chunk % 4;
  const std::byte* weights = args.matrix.tiles + tile * tile_bytes(type);
  const std::byte* scales = args.matrix.scales + tile * tile_scale_bytes(type);
  const int32_t scale_index = row % 8 * 4 + group * 2 + row / 8;
  __half values[8];
  if constexpr (type == WeightType::kQ8_0) {
    const float scale = __half2float(reinterpret_cast<const __half*>(scales)[scale_index]) * args.weight_scale;
    for (int32_t i = 0; i < 8; ++i) {
      const auto quant = static_cast<int8_t>(q8_place(weights, row, group, 8 * t + i));
      values[i] = __float2half_rn(scale * static_cast<float>(quant));
    }
  } else {
    const __half2 pair = reinterpret_cast<const __half2*>(scales)[scale_index];
    const float scale = __low2float(pair) * args.weight_scale;
    const float bias = __high2float(pair) * args.weight_scale;
    const uint32_t word = affine4_word(weights, row, group, t);
    for (int32_t i = 0; i < 8; ++i) {
      values[i] = __float2half_rn(__fmaf_rn(scale, static_cast<float>((word >> affine4_shift(i)) & 15U), bias));
    }
  }
  *reinterpret_cast<uint4*>(args.tiles + piece * 16) = *reinterpret_cast<const uint4*>(values);
}

LaunchShape shape_for(int64_t threads) {
  return {.grid = dim3(static_cast<uint32_t>((threads + kThreads - 1) / kThreads)), .block = dim3(kThreads)};
}

}  // namespace

cudaError_t pack_weights(const PackArgs& args, const LaunchContext& context) {
  switch (args.type) {
    case WeightType::kBf16:
      return launch(pack_bf16_kernel, shape_for(int64_t{args.rows} * (args.columns / 8)), context, args);
    case WeightType::kQ8_0:
      return launch(pack_quantized_kernel<WeightType::kQ8_0>, shape_for(int64_t{args.rows} * (args.columns / kGroup)),
                    context, args);
    case WeightType::kAffine4Gs32:
      return launch(pack_quantized_kernel<WeightType::kAffine4Gs32>,
                    shape_for(int64_t{args.rows} * (args.columns / kGroup)), context, args);
  }
  return cudaErrorInvalidValue;
}

cudaError_t largest_weight(const LargestWeightArgs& args, const LaunchContext& context) {
  constexpr uint32_t kBlocks = 1024;
  return launch(largest_weight_kernel, {.grid = dim3(kBlocks), .block = dim3(kThreads)}, context, args);
}

cudaError_t dequantize(const DequantizeArgs& args, const LaunchContext& context) {
  const LaunchShape shape = shape_for(int64_t{args.matrix.padded_rows} * (args.matrix.padded_columns / 8));
  switch (args.matrix.type) {
    case WeightType::kBf16: return cudaErrorInvalidValue;
    case WeightType::kQ8_0: return launch(dequantize_kernel<WeightType::kQ8_0>, shape, context, args);
    case WeightType::kAffine4Gs32: return launch(dequantize_kernel<WeightType::kAffine4Gs32>, shape, context, args);
  }
  return cudaErrorInvalidValue;
}

}  // namespace kipp::cuda
