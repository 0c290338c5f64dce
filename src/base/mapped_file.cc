// POSIX implementation of MappedFile.
#include "base/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "base/huge_pages.h"

namespace kipp {
namespace {

std::string reason() {
  return std::generic_category().message(errno);
}

struct Descriptor {
  int fd = -1;
  size_t size = 0;

  Descriptor() = default;
  Descriptor(Descriptor&& other) noexcept : fd(std::exchange(other.fd, -1)), size(other.size) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {  // a mapping outlives it
    if (fd >= 0) {
      ::close(fd);
    }
  }
};

// A regular file that is not empty.
Result<Descriptor> open_file(const std::filesystem::path& path) {
  // Non-blocking, so that a pipe without a writer is refused below instead of waited for; no effect on a file.
  Descriptor file;
  file.fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.fd < 0) {
    const ErrorCode code = errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo;
    return make_error(code, fmt::format("{}: cannot open: {}", path.string(), reason()));
  }
  struct stat status{};
  if (::fstat(file.fd, &status) != 0) {
    return make_error(ErrorCode::kIo, fmt::format("{}: cannot stat: {}", path.string(), reason()));
  }
  if (!S_ISREG(status.st_mode)) {
    return make_error(ErrorCode::kIo, fmt::format("{}: expected a regular file", path.string()));
  }
  if (status.st_size == 0) {
    return make_error(ErrorCode::kIo, fmt::format("{}: the file is empty", path.string()));
  }
  file.size = static_cast<size_t>(status.st_size);
  return file;
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  KIPP_ASSIGN(const Descriptor file, open_file(path));
  void* data = ::mmap(nullptr, file.size, PROT_READ, MAP_SHARED, file.fd, 0);
  if (data == MAP_FAILED) {
    return make_error(ErrorCode::kIo, fmt::format("{}: cannot map {} bytes: {}", path.string(), file.size, reason()));
  }
  ask_for_huge_pages(data, file.size);
  return MappedFile(static_cast<const std::byte*>(data), file.size);
}

Result<MappedFile> MappedFile::copy(const std::filesystem::path& path, const Progress& on_progress) {
  constexpr size_t kPiece = size_t{16} << 20;
  KIPP_ASSIGN(const Descriptor file, open_file(path));
  void* memory = ::mmap(nullptr, file.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return make_error(ErrorCode::kCapacity,
                      fmt::format("{}: no memory for its {} bytes: {}", path.string(), file.size, reason()));
  }
  ask_for_huge_pages(memory, file.size);
  auto* data = static_cast<std::byte*>(memory);
  MappedFile copied(data, file.size);
  for (size_t done = 0; done < file.size;) {
    const ssize_t count = ::pread(file.fd, data + done, std::min(kPiece, file.size - done), static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      return make_error(ErrorCode::kIo, fmt::format("{}: expected {} bytes, could read {}: {}", path.string(),
                                                    file.size, done, count == 0 ? "it was cut short" : reason()));
    }
    done += static_cast<size_t>(count);
    if (on_progress) {
      on_progress(done, file.size);
    }
  }
  static_cast<void>(::mprotect(memory, file.size, PROT_READ));
  return copied;
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
