// One byte of flags for every code point: what the pre-tokenizer and NFC need to know about it.
#pragma once

#include <cstdint>

namespace kipp {

enum CharClass : uint8_t {
  kLetter = 1,
  kNumber = 2,
  kSpace = 4,
  kNewline = 8,    // CR and LF only; also kSpace
  kNfcInert = 16,  // see unicode_tables.h
  kNfcException = 32,
};

inline constexpr uint32_t kNumCodePoints = 0x110000;

// [kNumCodePoints] flags; built once (about 0.2 ms), then shared. A flat table: ordinary text touches few lines of it.
const uint8_t* char_class_table();

}  // namespace kipp
