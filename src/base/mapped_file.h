// A file mapped read-only into memory. Pages are read when they are touched. A file that another process cuts short
// while it is mapped kills the reader (SIGBUS): artifacts are replaced by renaming, never rewritten in place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>

#include "kipp/error.h"

namespace kipp {

class MappedFile {
 public:
  MappedFile() = default;
  // Errors: kNotFound (no such file), kIo (a folder, a device, unreadable, empty, or the map failed).
  // Asks for huge pages, which some file systems have for a file's pages in memory.
  static Result<MappedFile> open(const std::filesystem::path& path);
  // The same bytes copied into memory of the process, in huge pages where the system has them: takes the file's size in
  // memory and the time to read it. on_progress: bytes copied so far and in all; may be empty. Errors: those of open,
  // kCapacity (not enough memory), kIo (the file was cut short meanwhile).
  using Progress = std::function<void(uint64_t copied, uint64_t size)>;
  static Result<MappedFile> copy(const std::filesystem::path& path, const Progress& on_progress);

  std::span<const std::byte> bytes() const { return {data_, size_}; }

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

 private:
  MappedFile(const std::byte* data, size_t size) : data_(data), size_(size) {}

  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace kipp
