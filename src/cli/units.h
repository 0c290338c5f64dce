// Numbers for people: bytes in binary units, counts in short scale.
#pragma once

#include <cstdint>
#include <string>

namespace kipp::cli {

std::string bytes_text(uint64_t bytes);  // "999 B", "1.50 KiB", "74.6 MiB", "15.3 GiB": three digits
std::string count_text(int64_t count);   // "999", "38.9 M", "8.19 B": three digits; not negative

}  // namespace kipp::cli
