// Whether the wish for huge pages reaches the system, as its own list of mappings shows.
#include "base/huge_pages.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>

#include "base/aligned_buffer.h"

namespace kipp {
namespace {

// "VmFlags" of the mapping that holds the address; "hg" among them is the wish. Empty: the system has no such list.
std::string flags_at(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  bool ours = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t first = 0;
    uintptr_t end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &first, &end) == 2) {
      ours = first <= wanted && wanted < end;
    } else if (ours && line.starts_with("VmFlags:")) {
      return line + " ";
    }
  }
  return {};
}

bool are_asked_for(const std::string& flags) {
  return flags.find(" hg ") != std::string::npos;
}

TEST(HugePages, ALargeBufferAsksForThemFromItsFirstByteToItsLast) {
  if (!std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled")) {
    GTEST_SKIP() << "this system has no huge pages for memory of a process";
  }
  const auto large = AlignedBuffer<std::byte>::create(kHugePagesFrom + 12345, "test");
  ASSERT_TRUE(large);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(large->data()) % kHugePage, 0U);
  EXPECT_TRUE(are_asked_for(flags_at(large->data())));
  EXPECT_TRUE(are_asked_for(flags_at(large->data() + kHugePagesFrom)));
}

TEST(HugePages, AnyRangeMayAskEvenOneThatHoldsNoWholePage) {
  std::byte few[64] = {};
  ask_for_huge_pages(few, sizeof few);
  ask_for_huge_pages(few, 0);
  EXPECT_FALSE(are_asked_for(flags_at(few)));
}

}  // namespace
}  // namespace kipp
