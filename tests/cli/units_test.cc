// Three digits and a unit.
#include "cli/units.h"

#include <gtest/gtest.h>

namespace kipp::cli {
namespace {

TEST(Units, BytesInBinaryUnits) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1536), "1.50 KiB");
  EXPECT_EQ(bytes_text(uint64_t{32} << 10), "32.0 KiB");
  EXPECT_EQ(bytes_text(uint64_t{100} << 20), "100 MiB");
  EXPECT_EQ(bytes_text(uint64_t{65'523'000'000}), "61.0 GiB");
  EXPECT_EQ(bytes_text(uint64_t{1} << 60), "1048576 TiB");
}

TEST(Units, CountsInThousands) {
  EXPECT_EQ(count_text(999), "999");
  EXPECT_EQ(count_text(40'973'504), "41.0 M");
  EXPECT_EQ(count_text(596'049'920), "596 M");
  EXPECT_EQ(count_text(8'190'735'360), "8.19 B");
}

}  // namespace
}  // namespace kipp::cli
