// What can be shown on a descriptor: a terminal or not, colours or not, how wide.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace kipp::cli {

bool is_terminal(int descriptor);

// Colours on a terminal, unless NO_COLOR is set and not empty (no-color.org) or TERM is "dumb" or unset.
bool use_colours(int descriptor);

// Text of a model or a user for a terminal: control characters (C0 but line feed and tab, DEL, C1) as \xNN or \u00NN,
// so that none of them acts on the terminal. text: whole characters of valid UTF-8.
std::string escape_controls(std::string_view text);

// Columns of the terminal; 80 where it does not say.
size_t terminal_width(int descriptor);

// SGR sequences (ECMA-48).
inline constexpr std::string_view kDim = "\x1b[2m";
inline constexpr std::string_view kCyan = "\x1b[36m";
inline constexpr std::string_view kReset = "\x1b[0m";

}  // namespace kipp::cli
