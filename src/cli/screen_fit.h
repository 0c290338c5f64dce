// How many rows of a terminal a text takes. libedit 3.1 reads past its picture of the screen once a line is longer than
// that, so the line editor asks before it comes to this.
#pragma once

#include <cstddef>
#include <string_view>

namespace kipp::cli {

struct ScreenSize {
  size_t rows;
  size_t columns;  // at least 2
};

// Never less than libedit takes: a line feed begins a row, a tab goes to the next multiple of 8, a control character
// shows as ^X, one that cannot be shown as \U+10FFFF, a wide one is never split between rows, and a combining one
// counts as a column, as libedit counts it while it is typed. Widths are those of the locale.
size_t rows_of(std::wstring_view text, size_t columns);

}  // namespace kipp::cli
