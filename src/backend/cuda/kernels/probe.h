// What the limits of a device are measured with, beside the product of prompt rows (matmul.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/launch.h"

namespace kipp::cuda {

inline constexpr int64_t kProbeTileBytes = 32768;  // that a block reads at a time

// Reads data[0 … bytes) once, 16 bytes a load, 8 loads a thread on their way together.
struct ReadMemoryArgs {
  const std::byte* data;
  int64_t bytes;            // a multiple of kProbeTileBytes
  int32_t tiles_per_block;  // one behind the other
  uint32_t* sink;           // written if the bytes' xor is one certain value: else no load would be needed
};
cudaError_t read_memory(const ReadMemoryArgs& args, const LaunchContext& context);

// Scrambled FP16 numbers in (-2, 2): constant ones would let the matrix unit draw less power than a model's do.
struct FillNumbersArgs {
  std::byte* data;
  int64_t bytes;  // a multiple of kProbeTileBytes
};
cudaError_t fill_numbers(const FillNumbersArgs& args, const LaunchContext& context);

}  // namespace kipp::cuda
