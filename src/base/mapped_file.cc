// POSIX implementation of MappedFile.
#include "base/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace kipp {
namespace {

std::string reason() {
  return std::generic_category().message(errno);
}

struct Descriptor {
  int fd;
  ~Descriptor() { ::close(fd); }  // the mapping outlives the descriptor
};

}  // namespace

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  // Non-blocking, so that a pipe without a writer is refused below instead of waited for; no effect on a file.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    const ErrorCode code = errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo;
    return make_error(code, fmt::format("{}: cannot open: {}", path.string(), reason()));
  }
  const Descriptor descriptor{fd};
  struct stat status{};
  if (::fstat(fd, &status) != 0) {
    return make_error(ErrorCode::kIo, fmt::format("{}: cannot stat: {}", path.string(), reason()));
  }
  if (!S_ISREG(status.st_mode)) {
    return make_error(ErrorCode::kIo, fmt::format("{}: expected a regular file", path.string()));
  }
  if (status.st_size == 0) {
    return make_error(ErrorCode::kIo, fmt::format("{}: the file is empty", path.string()));
  }
  const auto size = static_cast<size_t>(status.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) {
    return make_error(ErrorCode::kIo, fmt::format("{}: cannot map {} bytes: {}", path.string(), size, reason()));
  }
  MappedFile file;
  file.data_ = static_cast<const std::byte*>(data);
  file.size_ = size;
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) {
    ::munmap(const_cast<std::byte*>(data_), size_);
  }
}

}  // namespace kipp
