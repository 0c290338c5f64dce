// What somebody may have meant by a name that does not exist.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace kipp {

// Edits (insert, delete, replace, swap of neighbours) from one text to the other; a part of a text is edited once
// (optimal string alignment).
size_t edit_distance(std::string_view a, std::string_view b);

// "; did you mean --top-k?" with the nearest name, or nothing if none is near (a third of the longer text, at least 1).
std::string did_you_mean(std::string_view unknown, std::span<const std::string> names);

}  // namespace kipp
