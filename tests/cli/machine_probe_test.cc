// The probe of every instruction set of this machine: amounts are exact, rates only positive.
#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "backend/cpu/isa.h"
#include "backend/cpu/probe.h"

namespace kipp::cpu {
namespace {

TEST(MachineProbe, CountsWhatItDoes) {
  const std::vector<std::byte> data(4096 + 100, std::byte{3});
  for (const std::string_view isa : supported_isas()) {
    SCOPED_TRACE(isa);
    const auto kernels = choose_kernels(isa);
    ASSERT_TRUE(kernels);
    const auto probe = (*kernels)->probe;
    // Four streams of whole pairs of cache lines; what is left over is not read and not counted.
    EXPECT_EQ(probe({ProbeKind::kRead, data.data(), data.size(), 0}), 4096);
    EXPECT_EQ(probe({ProbeKind::kRead, data.data(), 500, 0}), 0);
    for (const ProbeKind kind : {ProbeKind::kFp32, ProbeKind::kBf16Dot, ProbeKind::kBf16Tile, ProbeKind::kInt8}) {
      const int64_t one = probe({kind, nullptr, 0, 1});
      EXPECT_EQ(probe({kind, nullptr, 0, 10}), 10 * one);
      EXPECT_EQ(one % 32, 0);
    }
    EXPECT_GT(probe({ProbeKind::kFp32, nullptr, 0, 1}), 0);
    const bool has_tiles = isa == "amx";
    EXPECT_EQ(probe({ProbeKind::kBf16Dot, nullptr, 0, 1}) > 0, has_tiles);
    EXPECT_EQ(probe({ProbeKind::kInt8, nullptr, 0, 1}) > 0, has_tiles || isa == "avx512_vnni");
    EXPECT_EQ(probe({ProbeKind::kBf16Tile, nullptr, 0, 1}) > 0, has_tiles);
  }
}

TEST(MachineProbe, MeasuresWithSeveralThreads) {
  const std::vector<std::byte> mapped(size_t{1} << 20, std::byte{1});
  const auto kernels = choose_kernels("");
  ASSERT_TRUE(kernels);
  for (const int32_t num_threads : {1, 3}) {
    const auto probe = Probe::create(**kernels, num_threads, mapped);
    ASSERT_TRUE(probe) << probe.error().message;
    EXPECT_EQ(probe->mapped_bytes(), mapped.size());
    EXPECT_GE(probe->memory_bytes(), size_t{16} << 20);
    const auto rates = probe->measure();
    ASSERT_TRUE(rates) << rates.error().message;
    EXPECT_GT(rates->read_memory, 0);
    EXPECT_GT(rates->read_mapped, 0);
    EXPECT_GT(rates->fp32, 0);
    EXPECT_GT(matrix_rate(*rates).operations_per_second, 0);
  }
}

TEST(MachineProbe, NamesTheBestWayToMultiplyBf16) {
  EXPECT_EQ(matrix_rate({.fp32 = 2, .bf16_dot = 4, .bf16_tile = 8}).instruction, "TDPBF16PS");
  EXPECT_EQ(matrix_rate({.fp32 = 2, .bf16_dot = 4}).instruction, "vdpbf16ps");
  EXPECT_EQ(matrix_rate({.fp32 = 4, .bf16_dot = 2}).operations_per_second, 4);  // where vdpbf16ps is slow
  EXPECT_EQ(matrix_rate({.fp32 = 4}).instruction, "FP32");
}

}  // namespace
}  // namespace kipp::cpu
