// Writes beside the target, then renames or links; devices and links are written in place.
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

#include "base/write_all.h"

namespace kipp::gates {
namespace {

constexpr mode_t kNewFile = 0666;  // less what the umask takes away, as of any program's files
constexpr mode_t kPermissions = 0777;

tl::unexpected<Error> io_error(const std::filesystem::path& path, int reason) {
  return make_error(ErrorCode::kIo,
                    fmt::format("{}: cannot be written: {}", path.string(), std::generic_category().message(reason)));
}

Result<void> done_or_error(const std::filesystem::path& path, int reason) {
  return reason == 0 ? Result<void>{} : io_error(path, reason);
}

// No plain file: renaming over it would replace what it leads to.
bool is_written_in_place(const std::filesystem::path& path) {
  std::error_code ignored;
  const auto status = std::filesystem::symlink_status(path, ignored);
  return std::filesystem::exists(status) && !std::filesystem::is_regular_file(status);
}

// Standard output or error, if the path leads to the same file (/dev/stdout does): opened anew, it would be written
// from its start over what the process has said there. -1: it is another.
int standard_stream_of(const std::filesystem::path& path) {
  struct stat target = {};
  if (::stat(path.c_str(), &target) == 0) {
    for (const int descriptor : {STDOUT_FILENO, STDERR_FILENO}) {
      struct stat stream = {};
      if (::fstat(descriptor, &stream) == 0 && stream.st_dev == target.st_dev && stream.st_ino == target.st_ino) {
        return descriptor;
      }
    }
  }
  return -1;
}

// Each of these functions returns 0 or errno.
int errno_unless(bool done) {
  return done ? 0 : errno;
}

int fill_and_close(int file, std::string_view content, bool sync) {
  int reason = write_all(file, content);
  if (reason == 0 && sync) {
    reason = errno_unless(::fsync(file) == 0);
  }
  const int closed = errno_unless(::close(file) == 0);
  return reason != 0 ? reason : closed;
}

// Beside the target, so that it gets its name inside one file system. Removes itself unless it was renamed.
class TemporaryFile {
 public:
  TemporaryFile(const std::filesystem::path& target, mode_t mode) {
    constexpr int kNumNames = 100;  // killed processes of the same id may have left some
    for (int i = 0; file_ < 0 && i < kNumNames; ++i) {
      name_ = (target.parent_path() / fmt::format(".{}.{}-{}", target.filename().string(), ::getpid(), i)).string();
      file_ = ::open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
      error_ = errno_unless(file_ >= 0);
      if (error_ != 0 && error_ != EEXIST) {
        return;
      }
    }
    exists_ = file_ >= 0;
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (file_ >= 0) {
      ::close(file_);
    }
    if (exists_) {
      ::unlink(name_.c_str());
    }
  }

  int error() const { return error_; }
  int set_mode(mode_t mode) const { return errno_unless(::fchmod(file_, mode) == 0); }
  int fill(std::string_view content) { return fill_and_close(std::exchange(file_, -1), content, true); }
  int rename_to(const std::filesystem::path& target) {
    exists_ = std::rename(name_.c_str(), target.c_str()) != 0;
    return errno_unless(!exists_);
  }
  // EEXIST where the name is taken, whatever has it.
  int link_to(const std::filesystem::path& target) const {
    return errno_unless(::link(name_.c_str(), target.c_str()) == 0);
  }

 private:
  std::string name_;
  int file_ = -1;
  int error_ = 0;
  bool exists_ = false;
};

Result<void> write_in_place(const std::filesystem::path& path, std::string_view content, mode_t mode) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
  return file < 0 ? io_error(path, errno) : done_or_error(path, fill_and_close(file, content, false));
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
  if (is_written_in_place(path) || standard_stream_of(path) >= 0) {
    return {};
  }
  return done_or_error(path, TemporaryFile(path, kNewFile).error());
}

Result<void> write_whole(const std::filesystem::path& path, std::string_view content, std::optional<mode_t> mode) {
  if (const int stream = standard_stream_of(path); stream >= 0) {
    return done_or_error(path, write_all(stream, content));
  }
  if (is_written_in_place(path)) {
    return write_in_place(path, content, mode.value_or(kNewFile));
  }
  struct stat before = {};
  if (!mode && ::stat(path.c_str(), &before) == 0) {
    mode = before.st_mode & kPermissions;
  }
  // Narrow from the start: what is being written may be as private as the old file was.
  TemporaryFile temporary(path, mode ? S_IRUSR | S_IWUSR : kNewFile);
  int reason = temporary.error();
  if (reason == 0 && mode) {
    reason = temporary.set_mode(*mode);
  }
  if (reason == 0) {
    reason = temporary.fill(content);
  }
  return done_or_error(path, reason != 0 ? reason : temporary.rename_to(path));
}

Result<void> write_new(const std::filesystem::path& path, std::string_view content, mode_t mode) {
  const auto taken = [&] {
    return make_error(ErrorCode::kInvalidArgument, fmt::format("{} exists already; name another file", path.string()));
  };
  std::error_code ignored;
  if (std::filesystem::exists(std::filesystem::symlink_status(path, ignored))) {
    return taken();
  }
  TemporaryFile temporary(path, mode);
  int reason = temporary.error();
  if (reason == 0) {
    reason = temporary.fill(content);
  }
  if (reason == 0) {
    reason = temporary.link_to(path);  // asks and takes the name in one step
  }
  return reason == EEXIST ? taken() : done_or_error(path, reason);
}

}  // namespace kipp::gates
