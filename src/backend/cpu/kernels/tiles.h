// The eight AMX tiles: their shapes and what is done with them. GCC 12's intrinsics do not tell the compiler that they
// read and write memory (and of a configuration only the first 8 bytes), so that it may drop stores: these do.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/kernels/simd.h"

namespace kipp::cpu {
namespace {

inline constexpr int32_t kNumTiles = 8;

// As ldtilecfg reads it.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  void set(int32_t tile, int32_t num_rows, int32_t num_row_bytes) {
    rows[tile] = static_cast<uint8_t>(num_rows);
    row_bytes[tile] = static_cast<uint16_t>(num_row_bytes);
  }
  // Zeroes all tiles. Takes as long as twenty products.
  void load() const { asm volatile("ldtilecfg %0" : : "m"(*this)); }
};

// All tiles with all their rows and bytes.
inline void configure_whole_tiles() {
  constexpr int32_t kRows = 16;
  constexpr int32_t kRowBytes = 64;
  TileConfig config;
  for (int32_t tile = 0; tile < kNumTiles; ++tile) {
    config.set(tile, kRows, kRowBytes);
  }
  config.load();
}

template <int kTile>
KIPP_INLINE void tile_load(const void* first_row, ptrdiff_t stride) {
  static_assert(kTile < kNumTiles);
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(first_row), "r"(stride), "i"(kTile) : "memory");
}

// Asks for a tile of contiguous rows, to be loaded soon. A tile load that finds its rows in the L2 cache takes six
// times as long as one product where another thread of the core is at work, and waits for them one after the other.
KIPP_INLINE void tile_prefetch(const void* first_row, ptrdiff_t bytes = 1024) {
  for (ptrdiff_t i = 0; i < bytes; i += 64) {
    __builtin_prefetch(static_cast<const char*>(first_row) + i, 0, 3);
  }
}

template <int kTile>
KIPP_INLINE void tile_store(void* first_row, ptrdiff_t stride) {
  static_assert(kTile < kNumTiles);
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(first_row), "r"(stride), "i"(kTile) : "memory");
}

template <int kTile>
KIPP_INLINE void tile_zero() {
  asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
}

// sum[m][n] += left[m][2k]·right[k][2n] + left[m][2k + 1]·right[k][2n + 1] for all k in order, in BF16 and FP32.
template <int kSum, int kLeft, int kRight>
KIPP_INLINE void tile_multiply() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kLeft), "i"(kRight));
}

// A thread that leaves its tiles in use makes each switch to another save them.
KIPP_INLINE void tile_release() {
  asm volatile("tilerelease");
}

}  // namespace
}  // namespace kipp::cpu
