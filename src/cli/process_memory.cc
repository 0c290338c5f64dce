// Lines of /proc: "VmHWM:   1234 kB" in status; in smaps a line for each mapping that ends in the file's path, followed
// by lines such as "Rss:   1234 kB".
#include "cli/process_memory.h"

#include <charconv>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

namespace kipp::cli {
namespace {

// The bytes of "name:   1234 kB"; nullopt for any other line.
std::optional<uint64_t> bytes_of(std::string_view line, std::string_view name) {
  if (!line.starts_with(name) || !line.ends_with(" kB")) {
    return std::nullopt;
  }
  const size_t digits = line.find_first_not_of(" \t", name.size());
  uint64_t kibibytes = 0;
  const auto [end, error] = std::from_chars(line.data() + digits, line.data() + line.size(), kibibytes);
  return error == std::errc() ? std::optional(kibibytes << 10) : std::nullopt;
}

// A mapping begins with its addresses in lower-case hexadecimal, its properties with a capital.
bool begins_mapping(std::string_view line) {
  return !line.empty() && std::string_view("0123456789abcdef").find(line.front()) != std::string_view::npos;
}

}  // namespace

Result<uint64_t> peak_resident_of(std::istream& status) {
  for (std::string line; std::getline(status, line);) {
    if (const auto bytes = bytes_of(line, "VmHWM:")) {
      return *bytes;
    }
  }
  return make_error(ErrorCode::kIo, "/proc/self/status: expected a line VmHWM, found none");
}

FileMemory resident_of(std::istream& smaps, const std::filesystem::path& path) {
  FileMemory memory;
  const std::string ending = " " + path.string();
  bool is_file = false;
  for (std::string line; std::getline(smaps, line);) {
    if (begins_mapping(line)) {
      is_file = line.ends_with(ending);
    } else if (is_file) {
      memory.resident_bytes += bytes_of(line, "Rss:").value_or(0);
      memory.huge_bytes += bytes_of(line, "FilePmdMapped:").value_or(0);
    }
  }
  return memory;
}

Result<uint64_t> peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  return peak_resident_of(status);
}

Result<FileMemory> resident_of_file(const std::filesystem::path& path) {
  std::ifstream smaps("/proc/self/smaps");
  std::error_code failed;
  const auto canonical = std::filesystem::canonical(path, failed);
  if (failed || !smaps) {
    return make_error(ErrorCode::kIo, "/proc/self/smaps: cannot tell what of " + path.string() + " is in memory");
  }
  return resident_of(smaps, canonical);
}

}  // namespace kipp::cli
