// Lays characters into rows one by one.
#include "cli/screen_fit.h"

#include <algorithm>
#include <cwchar>
#include <cwctype>

namespace kipp::cli {
namespace {

constexpr size_t kTabStop = 8;
constexpr size_t kEscapeWidth = 9;  // \U+10FFFF

size_t width_of(wchar_t character) {
  if (character < 0x20 || character == 0x7F) {
    return 2;  // ^X
  }
  const int width = ::wcwidth(character);
  return std::iswprint(static_cast<std::wint_t>(character)) == 0 || width < 0 ? kEscapeWidth
                                                                              : static_cast<size_t>(std::max(width, 1));
}

}  // namespace

size_t rows_of(std::wstring_view text, size_t columns) {
  size_t row = 0;
  size_t column = 0;
  for (const wchar_t character : text) {
    if (character == L'\n') {
      ++row;
      column = 0;
      continue;
    }
    const bool is_tab = character == L'\t';
    const size_t width = is_tab ? kTabStop - column % kTabStop : width_of(character);
    if (width == 2 && column + width > columns) {
      ++row;
      column = 0;
    }
    column += width;
    row += column / columns;
    column %= columns;
  }
  return row + 1;
}

}  // namespace kipp::cli
