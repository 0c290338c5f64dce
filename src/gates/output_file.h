// Files that appear under their name only when they are whole, and whose folder is tried before hours of work.
#pragma once

#include <filesystem>
#include <string_view>

#include "kipp/error.h"

namespace kipp::gates {

// Whether write_whole could write here; makes the temporary file beside the target and removes it again. Errors: kIo
// with the system's reason.
Result<void> check_writable(const std::filesystem::path& path);

// A temporary file beside the target that takes its name at the end; on failure neither is left changed. What is there
// already and is no plain file (a device, a pipe, a link) is written where it is. Errors: kIo with the system's reason.
Result<void> write_whole(const std::filesystem::path& path, std::string_view content);

}  // namespace kipp::gates
