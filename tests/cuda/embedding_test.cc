// Embedding rows: exact, by id or by the id that an earlier step drew.
#include <algorithm>

#include "backend/cuda/kernels/embedding.h"
#include "base/bf16.h"
#include "cuda/device_array.h"

namespace kipp::cuda {
namespace {

class CudaEmbeddingTest : public CudaTest {};

TEST_F(CudaEmbeddingTest, WidensTheRowsOfIdsAndOfSampledIds) {
  constexpr int32_t kVocab = 50;
  for (const int32_t hidden : {192, 1024, 5120}) {
    std::vector<uint16_t> table(static_cast<size_t>(kVocab * hidden));
    const std::vector<float> values = uniform_floats(1, table.size());
    std::ranges::transform(values, table.begin(), f32_to_bf16);
    const DeviceArray<uint16_t> device_table(table);
    const DeviceArray<int32_t> ids(std::vector<int32_t>{49, 7, -1, 0});
    const DeviceArray<int32_t> source(std::vector<int32_t>{-1, -1, 1, -1});
    const DeviceArray<int32_t> sampled(std::vector<int32_t>{3, 21});
    const DeviceArray<float> out(static_cast<size_t>(4 * hidden));
    KIPP_CUDA_OK(embedding({device_table.get(), ids.get(), source.get(), sampled.get(), out.get(), 4, hidden}, {}));
    const std::vector<float> found = out.read();
    const int32_t expected_ids[] = {49, 7, 21, 0};
    for (int32_t i = 0; i < 4 * hidden; ++i) {
      const auto index = static_cast<size_t>(expected_ids[i / hidden] * hidden + i % hidden);
      ASSERT_EQ(found[static_cast<size_t>(i)], bf16_to_f32(table[index])) << "hidden " << hidden << ", element " << i;
    }
  }
}

}  // namespace
}  // namespace kipp::cuda
