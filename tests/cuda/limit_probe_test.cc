// The probe of a GPU: its kernel reads every byte, its numbers are numbers, its limits are possible ones.
#include "backend/cuda/limit_probe.h"

#include <cstdint>
#include <set>
#include <vector>

#include "backend/cuda/kernels/probe.h"
#include "cuda/device_array.h"

namespace kipp::cuda {
namespace {

class CudaLimitProbeTest : public CudaTest {};

constexpr uint32_t kCertain = 0x9e3779b9;  // the xor of a thread's bytes that makes it write

// A word anywhere that no other load cancels shows: skipped bytes would leave the sink alone.
TEST_F(CudaLimitProbeTest, ReadsEveryPartOnce) {
  constexpr int64_t kTileWords = kProbeTileBytes / 4;
  for (const int64_t num_tiles : {1, 2, 7, 16, 33}) {
    const auto num_words = static_cast<size_t>(num_tiles * kTileWords);
    for (const int32_t tiles_per_block : {1, 2, 8}) {
      for (const size_t place : {size_t{0}, size_t{1}, num_words / 2 + 3, num_words - 4, num_words - 1}) {
        std::vector<uint32_t> words(num_words);
        words[place] = kCertain;
        const DeviceArray<uint32_t> data(words);
        const DeviceArray<uint32_t> sink(std::vector<uint32_t>{0});
        KIPP_CUDA_OK(read_memory({.data = reinterpret_cast<const std::byte*>(data.get()),
                                  .bytes = num_tiles * kProbeTileBytes,
                                  .tiles_per_block = tiles_per_block,
                                  .sink = sink.get()},
                                 {}));
        ASSERT_EQ(sink.read().front(), kCertain)
            << num_tiles << " tiles, " << tiles_per_block << " a block, word " << place;
      }
    }
  }
}

TEST_F(CudaLimitProbeTest, FillsWithDifferentNumbersBelowTwo) {
  constexpr int64_t kTiles = 3;
  const DeviceArray<uint16_t> data(static_cast<size_t>(kTiles * kProbeTileBytes / 2));
  KIPP_CUDA_OK(fill_numbers({reinterpret_cast<std::byte*>(data.get()), kTiles * kProbeTileBytes}, {}));
  std::set<uint16_t> different;
  for (const uint16_t bits : data.read()) {
    ASSERT_LT(bits & 0x7fff, 0x4000);  // 2 in FP16
    different.insert(bits);
  }
  EXPECT_GT(different.size(), 20000U);  // of 32,768 there could be, by 49,152 draws
}

TEST_F(CudaLimitProbeTest, MeasuresWhatADeviceCanDo) {
  const auto probe = create_cuda_probe({});
  ASSERT_TRUE(probe) << probe.error().message;
  const MachineFacts& facts = (*probe)->facts();
  EXPECT_TRUE(facts.has_memory);
  EXPECT_GE(facts.probe_bytes, size_t{512} << 20);
  ASSERT_NE(facts.fields.find("device"), nullptr);
  EXPECT_FALSE(facts.fields.find("device")->find("name")->as_string().empty());
  const auto before = (*probe)->bytes_in_use();
  ASSERT_TRUE(before) << before.error().message;
  const DeviceArray<std::byte> model(size_t{256} << 20);
  EXPECT_GE(*(*probe)->bytes_in_use(), *before + (size_t{256} << 20));
  const auto limits = (*probe)->measure();
  ASSERT_TRUE(limits) << limits.error().message;
  ASSERT_EQ(limits->reads.size(), 1U);
  EXPECT_GT(limits->reads.front().per_second, 1e11);  // of any GPU that runs Kipp
  EXPECT_LT(limits->reads.front().per_second, 2e13);
  EXPECT_GT(limits->products.at(limits->matrix).per_second, 1e12);
  EXPECT_LT(limits->products.at(limits->matrix).per_second, 1e16);
}

TEST_F(CudaLimitProbeTest, RefusesADeviceThatIsNotThere) {
  const auto probe = create_cuda_probe({.device = 1023});
  ASSERT_FALSE(probe);
  EXPECT_EQ(probe.error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace kipp::cuda
