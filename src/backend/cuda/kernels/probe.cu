// Reading at the speed of memory: the loads bypass the L1 cache, and the buffer is many times the L2 cache.
#include "backend/cuda/kernels/probe.h"

namespace kipp::cuda {
namespace {

constexpr int32_t kThreads = 256;
constexpr int32_t kLoads = 8;
constexpr int64_t kTilePieces = kThreads * kLoads;
static_assert(kTilePieces * static_cast<int64_t>(sizeof(uint4)) == kProbeTileBytes);

__global__ void __launch_bounds__(kThreads)
    read_memory_kernel(const uint4* data, int64_t num_tiles, int32_t tiles_per_block, uint32_t* sink) {
  start_next();
  wait_for_previous();
  const int64_t first = int64_t{blockIdx.x} * tiles_per_block;
  const int64_t end = min(first + tiles_per_block, num_tiles);
  uint32_t folded = 0;
  for (int64_t tile = first; tile < end; ++tile) {
    const uint4* from = data + tile * kTilePieces + threadIdx.x;
    uint4 pieces[kLoads];
#pragma unroll
    for (int32_t i = 0; i < kLoads; ++i) pieces[i] = __ldcs(from + i * kThreads);
#pragma unroll
    for (int32_t i = 0; i < kLoads; ++i) folded ^= pieces[i].x ^ pieces[i].y ^ pieces[i].z ^ pieces[i].w;
  }
  constexpr uint32_t kCertain = 0x9e3779b9;
  if (folded == kCertain) *sink = folded;
}

// A bijection of 32 bits whose result looks drawn (the finaliser of MurmurHash3).
__device__ uint32_t scrambled(uint32_t value) {
  value = (value ^ (value >> 16)) * 0x85ebca6bU;
  value = (value ^ (value >> 13)) * 0xc2b2ae35U;
  return value ^ (value >> 16);
}

__global__ void __launch_bounds__(kThreads) fill_numbers_kernel(uint4* data) {
  start_next();
  wait_for_previous();
  constexpr uint32_t kBelowTwo = 0xbfffbfffU;  // clears the top bit of either number's exponent
#pragma unroll
  for (int32_t i = 0; i < kLoads; ++i) {
    const int64_t piece = int64_t{blockIdx.x} * kTilePieces + i * kThreads + threadIdx.x;
    const auto number = static_cast<uint32_t>(piece) * 4;
    data[piece] = {scrambled(number) & kBelowTwo, scrambled(number + 1) & kBelowTwo, scrambled(number + 2) & kBelowTwo,
                   scrambled(number + 3) & kBelowTwo};
  }
}

}  // namespace

cudaError_t read_memory(const ReadMemoryArgs& args, const LaunchContext& context) {
  const int64_t num_tiles = args.bytes / kProbeTileBytes;
  const int64_t num_blocks = (num_tiles + args.tiles_per_block - 1) / args.tiles_per_block;
  return launch(read_memory_kernel,
                {.grid = dim3(static_cast<uint32_t>(num_blocks)), .block = dim3(kThreads), .shared_bytes = 0}, context,
                reinterpret_cast<const uint4*>(args.data), num_tiles, args.tiles_per_block, args.sink);
}

cudaError_t fill_numbers(const FillNumbersArgs& args, const LaunchContext& context) {
  return launch(
      fill_numbers_kernel,
      {.grid = dim3(static_cast<uint32_t>(args.bytes / kProbeTileBytes)), .block = dim3(kThreads), .shared_bytes = 0},
      context, reinterpret_cast<uint4*>(args.data));
}

}  // namespace kipp::cuda
