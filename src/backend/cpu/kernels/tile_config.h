// The shapes of the eight AMX tiles, as ldtilecfg reads them.
#pragma once

#include <cstdint>

namespace kipp::cpu {
namespace {

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
  // GCC 12's intrinsic tells the compiler of the first 8 bytes only, and the other stores vanish.
  void load() const { asm volatile("ldtilecfg %0" : : "m"(*this)); }
};

}  // namespace
}  // namespace kipp::cpu
