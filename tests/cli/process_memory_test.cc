// What Linux writes under /proc, and what it says of this process.
#include "cli/process_memory.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "base/mapped_file.h"

namespace kipp::cli {
namespace {

constexpr const char* kSmaps =
    "7f0000000000-7f0000200000 r--p 00000000 fe:00 12 /models/a model.gguf\n"
    "Size:               2048 kB\nRss:                1024 kB\nFilePmdMapped:       512 kB\n"
    "7f0000200000-7f0000400000 rw-p 00000000 00:00 0 \n"
    "Rss:                2048 kB\nFilePmdMapped:         0 kB\n"
    "7f0000400000-7f0000600000 r--p 00000000 fe:00 12 /models/a model.gguf\n"
    "Rss:                   8 kB\nFilePmdMapped:         0 kB\n"
    "7f0000600000-7f0000800000 r--p 00000000 fe:00 13 /other/models/a model.gguf.old\n"
    "Rss:                  64 kB\n";

TEST(ProcessMemory, AllMappingsOfOneFile) {
  std::istringstream smaps(kSmaps);
  const FileMemory memory = resident_of(smaps, "/models/a model.gguf");
  EXPECT_EQ(memory.resident_bytes, 1032U << 10);
  EXPECT_EQ(memory.huge_bytes, 512U << 10);
}

TEST(ProcessMemory, Peak) {
  std::istringstream status("Name:\tkipp\nVmPeak:\t  9999 kB\nVmHWM:\t  1234 kB\nVmRSS:\t  1000 kB\n");
  EXPECT_EQ(*peak_resident_of(status), 1234U << 10);
  std::istringstream none("Name:\tkipp\n");
  EXPECT_FALSE(peak_resident_of(none));
}

TEST(ProcessMemory, OfThisProcess) {
  const std::string path = "/proc/self/exe";
  const auto file = MappedFile::open(path);
  ASSERT_TRUE(file);
  unsigned sum = 0;
  for (const std::byte byte : file->bytes()) {
    sum += std::to_integer<unsigned>(byte);
  }
  ASSERT_NE(sum, 0U);
  const auto resident = resident_of_file(path);
  ASSERT_TRUE(resident);
  EXPECT_GE(resident->resident_bytes, file->bytes().size());
  EXPECT_GE(*peak_resident_bytes(), file->bytes().size());
  EXPECT_FALSE(resident_of_file("/nonexistent/file"));
}

}  // namespace
}  // namespace kipp::cli
