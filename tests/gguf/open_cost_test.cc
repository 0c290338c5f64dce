// Opening costs the header, whatever the size of the weights: a sparse file with the 32B's layout.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>

#include "gguf/rejection.h"

namespace kipp::gguf {
namespace {

struct Cost {
  double seconds = 0;
  int64_t peak_bytes = 0;    // resident, of the process, above what it had before
  int64_t mapped_bytes = 0;  // resident, of the file's mapping
  bool opened = false;
};

// A number of kilobytes from a "Name:   123 kB" line of /proc, in bytes.
int64_t proc_bytes(const std::string& line) {
  return std::stoll(line.substr(line.find(':') + 1)) * 1024;
}

// "VmRSS:" (now) or "VmHWM:" (the most so far).
int64_t resident_bytes(std::string_view name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name)) {
      return proc_bytes(line);
    }
  }
  return -1;
}

int64_t resident_bytes_of(const std::filesystem::path& path) {
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.ends_with(path.string())) {
      inside = true;
    } else if (inside && line.starts_with("Rss:")) {
      return proc_bytes(line);
    }
  }
  return -1;
}

// In a process of its own, whose peak begins with what it inherits and not with the peak of the tests before.
Cost cost_of_opening(const std::filesystem::path& path) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    Cost cost;
    const int64_t resident_before = resident_bytes("VmRSS:");
    const auto start = std::chrono::steady_clock::now();
    const auto model = ModelFile::open(path, {.allow_synthetic = true});
    cost.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    cost.opened = model.has_value();
    cost.peak_bytes = resident_bytes("VmHWM:") - resident_before;
    cost.mapped_bytes = resident_bytes_of(path);
    const auto written = ::write(ends[1], &cost, sizeof(cost));
    ::_exit(written == sizeof(cost) ? 0 : 1);
  }
  ::close(ends[1]);
  Cost cost;
  EXPECT_EQ(::read(ends[0], &cost, sizeof(cost)), static_cast<ssize_t>(sizeof(cost)));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  return cost;
}

TEST(OpenCost, IsThatOfTheHeader) {
  constexpr int64_t kMiB = 1024 * 1024;
  Cost costs[2];
  int64_t header_bytes[2];
  const std::string_view ids[2] = {"qwen3-0.6b", "qwen3-32b"};
  for (int i = 0; i < 2; ++i) {
    TemporaryFile file;
    {
      const FileImage image = valid_image({.id = ids[i]});
      file.write_image(image);
      header_bytes[i] = static_cast<int64_t>(image.padded_header().size());
    }
    costs[i] = cost_of_opening(file.path());
    ASSERT_TRUE(costs[i].opened);
    const std::string key(ids[i]);
    RecordProperty(key + "_open_ms", std::to_string(costs[i].seconds * 1e3));
    RecordProperty(key + "_peak_mib", std::to_string(costs[i].peak_bytes / kMiB));
    EXPECT_LT(costs[i].seconds, 1.0);
    EXPECT_GT(costs[i].peak_bytes, 0);
    // The header's pages and the token tables are about 12 MiB; a process may have 200 MiB in all.
    EXPECT_LT(costs[i].peak_bytes, 64 * kMiB);
    // The kernel maps a little around each page that is touched.
    EXPECT_GE(costs[i].mapped_bytes, header_bytes[i] / 2);
    EXPECT_LE(costs[i].mapped_bytes, header_bytes[i] + kMiB);
  }
  // 61 GiB of weights against 1.1: the larger one's resident mapping grows by its list of tensors only.
  EXPECT_LT(costs[1].mapped_bytes - costs[0].mapped_bytes, kMiB);
}

}  // namespace
}  // namespace kipp::gguf
