// How fast attention's CUDA kernels are on the shapes of a 4B model: one line for each shape, median of many launches
// in a graph. A generated row's limit is reading its KV, a prompt row's the products below the diagonal.
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>

#include "backend/cuda/kernels/attention_generated.h"
#include "backend/cuda/kernels/attention_prompt.h"
#include "backend/cuda/kernels/attention_prompt_variants.h"

namespace kipp::cuda {
namespace {

constexpr int32_t kNumHeads = 32;
constexpr int32_t kTokenBytes = 2 * kNumKvHeads * kHeadDim * 2;  // of keys and values
constexpr int64_t kBlockElements = 2 * kKvValuesOffset;
constexpr int32_t kLayers = 8;  // pools taken in turn, so that KV comes from memory as in a model
constexpr int32_t kSamples = 15;

void check(cudaError_t error) {
  if (error != cudaSuccess) {
    fmt::print(stderr, "{}\n", cudaGetErrorString(error));
    std::exit(1);
  }
}

template <typename T>
T* upload(const std::vector<T>& values) {
  T* data = nullptr;
  check(cudaMalloc(&data, values.size() * sizeof(T)));
  check(cudaMemcpy(data, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  return data;
}

template <typename T>
T* allocate_zeros(size_t count) {
  T* data = nullptr;
  check(cudaMalloc(&data, count * sizeof(T)));
  check(cudaMemset(data, 0, count * sizeof(T)));
  return data;
}

// Block tables of `num_sequences` sequences in a pool that holds them in random order.
struct Pool {
  PagedKv kv;
  int64_t layer_elements;

  Pool(int32_t num_sequences, int32_t context) {
    const int32_t blocks = (context + kBlockPositions - 1) / kBlockPositions;
    std::vector<int32_t> tables(static_cast<size_t>(num_sequences * blocks));
    std::iota(tables.begin(), tables.end(), 0);
    std::shuffle(tables.begin(), tables.end(), std::mt19937(1));
    layer_elements = static_cast<int64_t>(tables.size()) * kBlockElements;
    std::vector<uint16_t> layer(static_cast<size_t>(layer_elements));
    std::mt19937 engine(2);
    std::ranges::generate(layer, [&] { return static_cast<uint16_t>(0x3800U ^ (engine() & 0x83FFU)); });
    auto* pool = allocate_zeros<uint16_t>(layer.size() * kLayers);
    for (int32_t i = 0; i < kLayers; ++i) {
      check(cudaMemcpy(pool + i * layer_elements, layer.data(), layer.size() * 2, cudaMemcpyHostToDevice));
    }
    kv = {pool, kBlockElements, upload(tables), blocks, static_cast<int32_t>(tables.size())};
  }
  PagedKv layer(int32_t index) const {
    PagedKv one = kv;
    one.pool += index % kLayers * layer_elements;
    return one;
  }
  void free() const {
    check(cudaFree(const_cast<uint16_t*>(kv.pool)));
    check(cudaFree(const_cast<int32_t*>(kv.block_tables)));
  }
};

std::vector<float> random_queries(int32_t rows) {
  std::vector<float> q(static_cast<size_t>(rows) * kNumHeads * kHeadDim);
  std::mt19937 engine(3);
  std::normal_distribution<float> normal;
  std::ranges::generate(q, [&] { return normal(engine); });
  return q;
}

// Microseconds of one `enqueue(i, context)`, from graphs of `launches` of them.
template <typename Enqueue>
double time_us(int32_t launches, bool overlap, Enqueue enqueue) {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreate(&stream));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int32_t i = 0; i < launches; ++i) {
    check(enqueue(i, LaunchContext{stream, overlap}));
  }
  check(cudaStreamEndCapture(stream, &graph));
  check(cudaGraphInstantiate(&executable, graph, 0));
  cudaEvent_t start = nullptr;
  cudaEvent_t stop = nullptr;
  check(cudaEventCreate(&start));
  check(cudaEventCreate(&stop));
  std::vector<double> samples;
  for (int32_t i = 0; i < kSamples + 2; ++i) {
    check(cudaEventRecord(start, stream));
    check(cudaGraphLaunch(executable, stream));
    check(cudaEventRecord(stop, stream));
    check(cudaEventSynchronize(stop));
    float ms = 0.0F;
    check(cudaEventElapsedTime(&ms, start, stop));
    if (i >= 2) {
      samples.push_back(double{ms} * 1e3 / launches);
    }
  }
  check(cudaEventDestroy(start));
  check(cudaEventDestroy(stop));
  check(cudaGraphExecDestroy(executable));
  check(cudaGraphDestroy(graph));
  check(cudaStreamDestroy(stream));
  std::ranges::nth_element(samples, samples.begin() + kSamples / 2);
  return samples[kSamples / 2];
}

void bench_generated(int32_t rows, int32_t context, int32_t max_context) {
  const Pool pool(rows, context);
  auto* q = upload(random_queries(rows));
  auto* positions = upload(std::vector<int32_t>(static_cast<size_t>(rows), context - 1));
  std::vector<int32_t> order(static_cast<size_t>(rows));
  std::iota(order.begin(), order.end(), 0);
  auto* sequences = upload(order);
  auto* out = allocate_zeros<uint16_t>(static_cast<size_t>(2 * rows * kNumHeads * kHeadDim));
  auto* workspace = allocate_zeros<uint8_t>(attention_generated_workspace_bytes(rows, kNumHeads, max_context));
  for (const bool overlap : {false, true}) {
    const double us = time_us(128, overlap, [&](int32_t i, const LaunchContext& launch) {
      return attention_generated({pool.layer(i), q, positions, sequences, overlap ? positions : nullptr, out,
                                  out + rows * kNumHeads * kHeadDim, workspace, rows, rows, kNumHeads, max_context},
                                 launch);
    });
    const double bytes = double(rows) * context * kTokenBytes;
    fmt::print("generated {:3} x {:6} (grid for {:6}){} {:9.2f} us {:8.0f} GB/s\n", rows, context, max_context,
               overlap ? " overlapped" : "           ", us, bytes / us * 1e-3);
  }
  pool.free();
  for (void* data : {static_cast<void*>(q), static_cast<void*>(positions), static_cast<void*>(sequences),
                     static_cast<void*>(out), static_cast<void*>(workspace)}) {
    check(cudaFree(data));
  }
}

// `rows` tokens at the end of a context.
void bench_prompt(int32_t rows, int32_t context) {
  const Pool pool(1, context);
  auto* q = upload(random_queries(rows));
  auto* out = allocate_zeros<uint16_t>(static_cast<size_t>(rows) * kNumHeads * kHeadDim);
  std::vector<PromptTile> tiles;
  const int32_t tokens = prompt_tile_tokens(kNumHeads);
  for (int32_t t = 0; t < rows; t += tokens) {
    tiles.push_back({t, context - rows + t, std::min(tokens, rows - t), 0});
  }
  std::ranges::reverse(tiles);
  auto* device_tiles = upload(tiles);
  const double pairs = double(rows) * (context - rows) + double(rows) * (rows + 1) / 2;
  const double flops = 4.0 * kHeadDim * kNumHeads * pairs;
  for (const bool sm90 : {false, true}) {
    if (sm90 && !has_attention_prompt_sm90()) {
      continue;
    }
    const auto kernel = sm90 ? attention_prompt_sm90 : attention_prompt_sm80;
    const double us = time_us(8, false, [&](int32_t i, const LaunchContext& launch) {
      return kernel({pool.layer(i), q, device_tiles, out, static_cast<int32_t>(tiles.size()), kNumHeads}, launch);
    });
    fmt::print("prompt {} {:6} rows of {:6} {:9.1f} us {:8.1f} TFLOP/s\n", sm90 ? "sm90" : "sm80", rows, context, us,
               flops / us * 1e-6);
  }
  pool.free();
  for (void* data : {static_cast<void*>(q), static_cast<void*>(out), static_cast<void*>(device_tiles)}) {
    check(cudaFree(data));
  }
}

}  // namespace
}  // namespace kipp::cuda

int main() {
  using namespace kipp::cuda;
  for (const int32_t context : {1, 128, 256, 512, 1024, 2048, 4096, 8192, 16'384, 32'768}) {
    bench_generated(1, context, context);
  }
  bench_generated(1, 128, 40'960);
  bench_generated(1, 2048, 40'960);
  bench_generated(8, 1024, 1024);
  bench_generated(64, 128, 128);
  bench_generated(64, 1024, 1024);
  bench_generated(64, 1024, 40'960);
  bench_prompt(512, 512);
  bench_prompt(2048, 2048);
  bench_prompt(2048, 16'384);
  bench_prompt(16'384, 16'384);
  return 0;
}
