// What this process may use of the machine: processors and memory, limits of its control group included.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

namespace kipp {

// At least 1: the affinity mask's processors, at most the control groups' quota rounded up.
int32_t available_processors();
// Bytes that can be allocated without swapping: MemAvailable, at most what the control groups leave.
uint64_t available_memory_bytes();

// For tests: the same limits read from a given file tree (an absolute path inside it is relative to root).
std::optional<double> cgroup_processor_quota(const std::filesystem::path& root);
std::optional<uint64_t> cgroup_memory_left(const std::filesystem::path& root);

}  // namespace kipp
