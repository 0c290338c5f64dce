// Resident memory of this process as Linux counts it, and how much of it is pages of one file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <istream>

#include "kipp/error.h"

namespace kipp::cli {

struct FileMemory {
  uint64_t resident_bytes = 0;
  uint64_t huge_bytes = 0;  // of these, mapped by huge pages
};

// The largest resident set so far (VmHWM). Errors: kIo.
Result<uint64_t> peak_resident_bytes();
// Over all mappings of the file. Errors: kIo.
Result<FileMemory> resident_of_file(const std::filesystem::path& path);

// For tests: the same from the text of /proc/PID/status and /proc/PID/smaps.
Result<uint64_t> peak_resident_of(std::istream& status);
FileMemory resident_of(std::istream& smaps, const std::filesystem::path& path);

}  // namespace kipp::cli
