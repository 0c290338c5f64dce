// How fast the products run: GB/s of weights for generated rows, TFLOP/s for prompt rows. Weights rotate among copies so
// that they come from memory, not from the cache.
#include <cstdio>

#include "backend/cuda/kernels/matmul.h"
#include "backend/cuda/kernels/pack_weights.h"
#include "cuda/device_array.h"

namespace kipp::cuda {
namespace {

struct Weights {
  std::vector<DeviceArray<std::byte>> tiles, scales;
  std::vector<DeviceMatrix> copies;

  Weights(WeightType type, int32_t rows, int32_t columns) {
    const int64_t bytes = num_tiles(rows, columns) * tile_bytes(type);
    const int64_t scale_bytes = num_tiles(rows, columns) * tile_scale_bytes(type);
    const auto count = static_cast<int32_t>(std::max<int64_t>(2, (int64_t{300} << 20) / bytes));
    std::vector<std::byte> random(static_cast<size_t>(bytes));
    std::mt19937 engine(1);
    for (std::byte& byte : random) byte = static_cast<std::byte>(engine() & 0x37U);  // no NaN in FP16
    for (int32_t i = 0; i < count; ++i) {
      tiles.emplace_back(random);
      scales.emplace_back(std::vector<std::byte>(static_cast<size_t>(scale_bytes) + 16, std::byte{0x22}));
      copies.push_back({.type = type,
                        .rows = rows,
                        .columns = columns,
                        .padded_rows = static_cast<int32_t>(padded(rows, kPaddedRows)),
                        .padded_columns = static_cast<int32_t>(padded(columns, kPaddedColumns)),
                        .tiles = tiles.back().get(),
                        .scales = scales.back().get()});
    }
  }
};

// Microseconds of one call, over `calls` of them in a graph.
template <typename Call>
float time_us(int32_t calls, const Call& call) {
  cudaStream_t stream;
  cudaStreamCreate(&stream);
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  for (int32_t i = 0; i < calls; ++i) {
    const cudaError_t error = call(i, LaunchContext{stream, i > 0});
    if (error != cudaSuccess) std::printf("launch: %s\n", cudaGetErrorString(error));
  }
  cudaStreamEndCapture(stream, &graph);
  cudaGraphInstantiate(&exec, graph, 0);
  cudaEvent_t start, end;
  cudaEventCreate(&start);
  cudaEventCreate(&end);
  float best = 1e9F;
  for (int32_t repeat = 0; repeat < 6; ++repeat) {
    cudaEventRecord(start, stream);
    cudaGraphLaunch(exec, stream);
    cudaEventRecord(end, stream);
    if (const cudaError_t error = cudaStreamSynchronize(stream); error != cudaSuccess) {
      std::printf("run: %s\n", cudaGetErrorString(error));
      std::exit(1);
    }
    float ms = 0;
    cudaEventElapsedTime(&ms, start, end);
    best = std::min(best, ms * 1e3F / static_cast<float>(calls));
  }
  return best;
}

void run(const char* name, int32_t rows, int32_t columns, bool prompts) {
  for (const WeightType type : {WeightType::kBf16, WeightType::kQ8_0, WeightType::kAffine4Gs32}) {
    if (prompts && type != WeightType::kBf16) continue;
    const Weights weights(type, rows, columns);
    const auto count = static_cast<int32_t>(weights.copies.size());
    constexpr int32_t kMost = 2048;
    std::vector<uint16_t> x(static_cast<size_t>(kMost) * static_cast<size_t>(padded(columns, kPaddedColumns)));
    std::mt19937 engine(2);
    for (uint16_t& value : x) value = static_cast<uint16_t>(engine() & 0xBBFFU);
    const DeviceArray<uint16_t> high(x);
    const DeviceArray<float> out(static_cast<size_t>(int64_t{rows} * (prompts ? kMost : 64 * kNumSlices)));
    for (const int32_t num_rows : prompts ? std::vector{64, 256, 512, 1024, 2048} : std::vector{1, 2, 8, 16, 32, 64}) {
      const auto call = [&](int32_t i, const LaunchContext& context) {
        const DeviceMatrix& matrix = weights.copies[static_cast<size_t>(i % count)];
        const auto* half = reinterpret_cast<const __half*>(high.get());
        MatmulArgs args{.matrix = matrix,
                        .x = {half, half, matrix.padded_columns},
                        .to = {.out = out.get(), .partial_stride = int64_t{num_rows} * rows, .stride = rows, .width = rows},
                        .out_scale = 1.0F,
                        .num_rows = num_rows,
                        .swiglu = false};
        if (!prompts) return generated_matmul(args, plan_generated_matmul(matrix, num_rows, 132), context);
        CUtensorMap map;
        make_activation_map(map, half, kMost, matrix.padded_columns);
        return prompt_matmul_wgmma(args, map, 132, context);
      };
      const float us = time_us(4 * count, call);
      const double bytes = static_cast<double>(num_tiles(rows, columns)) * (tile_bytes(type) + tile_scale_bytes(type));
      const double flops = 2.0 * rows * columns * num_rows;
      std::printf("%-10s type %d %5d rows: %8.2f us %7.0f GB/s %6.1f TFLOP/s\n", name, static_cast<int>(type), num_rows, us,
                  bytes / us * 1e-3, flops / us * 1e-6);
    }
  }
}

}  // namespace
}  // namespace kipp::cuda

int main() {
  using kipp::cuda::run;
  for (const bool prompts : {false, true}) {
    run("4B qkv", 6144, 2560, prompts);
    run("4B out", 2560, 4096, prompts);
    run("4B gateup", 19456, 2560, prompts);
    run("4B down", 2560, 9728, prompts);
    run("0.6B qkv", 4096, 1024, prompts);
    run("0.6B down", 1024, 3072, prompts);
    if (!prompts) run("4B head", 151936, 2560, prompts);
  }
  return 0;
}
