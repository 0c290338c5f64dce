// Linux: sched_getaffinity, /proc/meminfo, and control groups version 2 and 1. A file that is absent sets no limit.
#include "base/machine.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

namespace kipp {
namespace {

namespace fs = std::filesystem;

std::optional<std::string> first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) {
    return std::nullopt;
  }
  return line;
}

std::optional<int64_t> read_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

std::optional<int64_t> read_number(const fs::path& path) {
  const auto line = first_line(path);
  return line ? read_number(std::string_view(*line)) : std::nullopt;
}

// Whether a comma-separated list has this name; the empty name only matches the empty list.
bool list_has(std::string_view list, std::string_view name) {
  while (true) {
    const size_t comma = list.find(',');
    if (list.substr(0, comma) == name) {
      return true;
    }
    if (comma == std::string_view::npos) {
      return false;
    }
    list.remove_prefix(comma + 1);
  }
}

// Folders of the process's own group and of every group above it, for a version-2 tree or one version-1 controller.
std::vector<fs::path> group_folders(const fs::path& root, std::string_view controller) {
  const fs::path mount = root / "sys/fs/cgroup" / controller;
  std::vector<fs::path> folders;
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "id:controller,controller:/path"; version 2: "0::/path"
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos ||
        !list_has(std::string_view(line).substr(first + 1, second - first - 1), controller)) {
      continue;
    }
    for (fs::path group = fs::path(line.substr(second + 1)).relative_path(); !group.empty();
         group = group.parent_path()) {
      folders.push_back(mount / group);
    }
  }
  folders.push_back(mount);  // in a container the group's own files are at the mount
  return folders;
}

template <typename T>
std::optional<T> smaller(std::optional<T> a, std::optional<T> b) {
  return a && b ? std::min(*a, *b) : a ? a : b;
}

std::optional<double> quota_of_group(const fs::path& folder) {
  if (const auto line = first_line(folder / "cpu.max")) {  // "quota period" or "max period", microseconds
    const size_t space = line->find(' ');
    const auto quota = read_number(std::string_view(*line).substr(0, space));
    const auto period =
        space == std::string::npos ? std::nullopt : read_number(std::string_view(*line).substr(space + 1));
    return quota && period && *period > 0 ? std::optional(static_cast<double>(*quota) / static_cast<double>(*period))
                                          : std::nullopt;
  }
  const auto quota = read_number(folder / "cpu.cfs_quota_us");  // -1: none
  const auto period = read_number(folder / "cpu.cfs_period_us");
  return quota && period && *quota > 0 && *period > 0
             ? std::optional(static_cast<double>(*quota) / static_cast<double>(*period))
             : std::nullopt;
}

std::optional<uint64_t> memory_left_in_group(const fs::path& folder) {
  auto limit = read_number(folder / "memory.max");
  auto used = read_number(folder / "memory.current");
  if (!limit) {
    limit = read_number(folder / "memory.limit_in_bytes");
    used = read_number(folder / "memory.usage_in_bytes");
  }
  if (!limit || !used) {
    return std::nullopt;
  }
  int64_t reclaimable = 0;  // page cache, mapped weights among it, gives way to allocations
  std::ifstream statistics(folder / "memory.stat");
  std::string name;
  for (int64_t value = 0; statistics >> name >> value;) {
    reclaimable += name == "inactive_file" || name == "active_file" ? value : 0;
  }
  return static_cast<uint64_t>(std::max<int64_t>(*limit - *used + reclaimable, 0));
}

}  // namespace

std::optional<double> cgroup_processor_quota(const fs::path& root) {
  std::optional<double> quota;
  for (const std::string_view controller : {"", "cpu"}) {
    for (const fs::path& folder : group_folders(root, controller)) {
      quota = smaller(quota, quota_of_group(folder));
    }
  }
  return quota;
}

std::optional<uint64_t> cgroup_memory_left(const fs::path& root) {
  std::optional<uint64_t> left;
  for (const std::string_view controller : {"", "memory"}) {
    for (const fs::path& folder : group_folders(root, controller)) {
      left = smaller(left, memory_left_in_group(folder));
    }
  }
  return left;
}

int32_t available_processors() {
  int32_t processors = 1;
  for (size_t size = 1024; size <= 1U << 20U; size *= 2) {  // grows until the kernel's mask fits
    std::vector<cpu_set_t> mask(size / CPU_SETSIZE);
    const size_t bytes = mask.size() * sizeof(cpu_set_t);
    if (::sched_getaffinity(0, bytes, mask.data()) == 0) {
      processors = std::max(1, CPU_COUNT_S(bytes, mask.data()));
      break;
    }
  }
  if (const auto quota = cgroup_processor_quota("/")) {
    processors = std::min(processors, std::max(1, static_cast<int32_t>(std::ceil(*quota))));
  }
  return processors;
}

uint64_t available_memory_bytes() {
  uint64_t available = std::numeric_limits<uint64_t>::max();  // unknown: the allocation itself decides
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    const size_t digits = line.find_first_of("0123456789");
    if (line.starts_with("MemAvailable:") && digits != std::string::npos) {
      available = static_cast<uint64_t>(read_number(std::string_view(line).substr(digits)).value_or(0)) * 1024;  // kB
    }
  }
  const auto left = cgroup_memory_left("/");
  return left ? std::min(available, *left) : available;
}

}  // namespace kipp
