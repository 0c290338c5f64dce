// Writes beside the target and renames; devices and links are written in place.
#include "gates/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <system_error>
#include <utility>

namespace kipp::gates {
namespace {

tl::unexpected<Error> io_error(const std::filesystem::path& path, int reason) {
  return make_error(ErrorCode::kIo,
                    fmt::format("{}: cannot be written: {}", path.string(), std::generic_category().message(reason)));
}

// No plain file: renaming over it would replace what it leads to.
bool is_written_in_place(const std::filesystem::path& path) {
  std::error_code ignored;
  const auto status = std::filesystem::symlink_status(path, ignored);
  return std::filesystem::exists(status) && !std::filesystem::is_regular_file(status);
}

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (value_ >= 0) {
      ::close(value_);
    }
  }
  int get() const { return value_; }
  int close() { return ::close(std::exchange(value_, -1)); }

 private:
  int value_;
};

// Beside the target, so that the rename stays inside one file system. Removes itself unless it was renamed.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::filesystem::path& target)
      : name_((target.parent_path() / fmt::format(".{}.XXXXXX", target.filename().string())).string()),
        file_(::mkostemp(name_.data(), O_CLOEXEC)) {}
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (exists_) {
      ::unlink(name_.c_str());
    }
  }
  bool exists() const { return exists_; }
  Descriptor& file() { return file_; }
  bool rename_to(const std::filesystem::path& target) {
    exists_ = std::rename(name_.c_str(), target.c_str()) != 0;
    return !exists_;
  }

 private:
  std::string name_;
  Descriptor file_;
  bool exists_ = file_.get() >= 0;
};

bool write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) {
      return false;
    }
    bytes.remove_prefix(written < 0 ? 0 : static_cast<size_t>(written));
  }
  return true;
}

}  // namespace

Result<void> check_writable(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return io_error(path, EISDIR);
  }
  if (std::filesystem::exists(path, ignored) && ::access(path.c_str(), W_OK) != 0) {
    return io_error(path, errno);
  }
  if (is_written_in_place(path)) {
    return {};
  }
  const TemporaryFile probe(path);
  return probe.exists() ? Result<void>{} : io_error(path, errno);
}

Result<void> write_whole(const std::filesystem::path& path, std::string_view content) {
  if (is_written_in_place(path)) {
    Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (file.get() < 0 || !write_all(file.get(), content) || file.close() != 0) {
      return io_error(path, errno);
    }
    return {};
  }
  TemporaryFile temporary(path);
  constexpr mode_t kReadableByAll = 0644;  // mkostemp's 0600 is for secrets
  if (!temporary.exists() || ::fchmod(temporary.file().get(), kReadableByAll) != 0 ||
      !write_all(temporary.file().get(), content) || ::fsync(temporary.file().get()) != 0 ||
      temporary.file().close() != 0 || !temporary.rename_to(path)) {
    return io_error(path, errno);
  }
  return {};
}

}  // namespace kipp::gates
