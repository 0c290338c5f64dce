// Files that appear under their name only when they are whole, and whose folder is tried before hours of work.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string_view>

#include "kipp/error.h"

namespace kipp::gates {

// Whether write_whole could write here; makes the temporary file beside the target and removes it again. Errors: kIo
// with the system's reason.
Result<void> check_writable(const std::filesystem::path& path);

// A temporary file beside the target that takes its name at the end; on failure neither is left changed. What is there
// already and is no plain file (a device, a pipe, a link) is written where it is; what is the process's own standard
// output or error is written through that, behind what was said there. mode: the file's permissions; else those of the
// file that was there, else what the umask leaves. Errors: kIo with the system's reason.
Result<void> write_whole(const std::filesystem::path& path, std::string_view content, std::optional<mode_t> mode = {});

// The same for a name that nothing has yet, a dangling link included; of two processes that write one name, one gets
// it. mode: less what the umask takes away. Errors: kInvalidArgument (the name is taken), kIo.
Result<void> write_new(const std::filesystem::path& path, std::string_view content, mode_t mode);

}  // namespace kipp::gates
