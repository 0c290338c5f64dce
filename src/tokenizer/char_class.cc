// Builds the flat table of character classes from the generated ranges.
#include "tokenizer/char_class.h"

#include <memory>
#include <span>

#include "tokenizer/unicode_tables.h"

namespace kipp {
namespace {

void mark(uint8_t* table, std::span<const CodePointRange> ranges, CharClass flag) {
  for (const CodePointRange& range : ranges) {
    for (uint32_t code_point = range.first; code_point <= range.last; ++code_point) {
      table[code_point] = static_cast<uint8_t>(table[code_point] | flag);
    }
  }
}

std::unique_ptr<uint8_t[]> build_table() {
  auto table = std::make_unique<uint8_t[]>(kNumCodePoints);
  mark(table.get(), kLetterRanges, kLetter);
  mark(table.get(), kNumberRanges, kNumber);
  mark(table.get(), kSpaceRanges, kSpace);
  mark(table.get(), kNfcInertRanges, kNfcInert);
  mark(table.get(), kNfcExceptionRanges, kNfcException);
  table['\n'] |= kNewline;
  table['\r'] |= kNewline;
  return table;
}

}  // namespace

const uint8_t* char_class_table() {
  static const std::unique_ptr<uint8_t[]> table = build_table();
  return table.get();
}

}  // namespace kipp
