// Code point ranges, sorted and closed, from data/unicode; the .cc is made by tools/make_unicode_tables.py.
#pragma once

#include <cstdint>
#include <span>

namespace kipp {

struct CodePointRange {
  uint32_t first, last;
};

// \p{L}, \p{N}, \s of the reference's regex engine (Unicode 16; utf8proc's own categories are older).
extern const std::span<const CodePointRange> kLetterRanges;
extern const std::span<const CodePointRange> kNumberRanges;
extern const std::span<const CodePointRange> kSpaceRanges;
// Starters that NFC copies and never joins to what precedes them. Not complete: what is missing is only slower.
extern const std::span<const CodePointRange> kNfcInertRanges;
// Code points at which NFC splits the text, since utf8proc's data differ from the reference's there.
extern const std::span<const CodePointRange> kNfcExceptionRanges;

}  // namespace kipp
