// A file in memory, for readers that take a path or a descriptor.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "fuzz/require.h"

namespace kipp::fuzzing {

class MemoryFile {
 public:
  MemoryFile() : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)) { require(descriptor_ >= 0); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(descriptor_); }

  int descriptor() const { return descriptor_; }
  std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

  // Replaces the content; the position is at the start afterwards.
  void assign(std::string_view bytes) const {
    require(::ftruncate(descriptor_, 0) == 0);
    require(::pwrite(descriptor_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
    require(::lseek(descriptor_, 0, SEEK_SET) == 0);
  }

  std::string content() const {
    std::string bytes(static_cast<size_t>(::lseek(descriptor_, 0, SEEK_END)), '\0');
    require(::pread(descriptor_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
    return bytes;
  }

 private:
  int descriptor_;
};

}  // namespace kipp::fuzzing
