// A file mapped read-only into memory. Pages are read when they are touched. A file that another process cuts short
// while it is mapped kills the reader (SIGBUS): artifacts are replaced by renaming, never rewritten in place.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "kipp/error.h"

namespace kipp {

class MappedFile {
 public:
  MappedFile() = default;
  // Errors: kNotFound (no such file), kIo (a folder, a device, unreadable, empty, or the map failed).
  static Result<MappedFile> open(const std::filesystem::path& path);

  std::span<const std::byte> bytes() const { return {data_, size_}; }

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace kipp
