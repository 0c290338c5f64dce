// How fast the products run: GB/s of weights for generated rows, TFLOP/s for prompt rows. Weights rotate among copies
// so that they come from memory, not from the cache.
#include <cstdio>
#include <cstring>

#include "backend/cuda/kernels/generated_matmul_cluster.h"
#include "backend/cuda/kernels/generated_matmul_variants.h"
#include "backend/cuda/kernels/matmul.h"
#include "backend/cuda/kernels/pack_weights.h"
#include "backend/cuda/kernels/swiglu.h"
#include "cuda/device_array.h"

namespace kipp::cuda {
namespace {

constexpr int32_t kSms = 132;

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

double bytes_of(const DeviceMatrix& m) {
  return static_cast<double>(num_tiles(m.rows, m.columns)) * (tile_bytes(m.type) + tile_scale_bytes(m.type));
}

// Activations of any product here, finite.
struct Input {
  static constexpr int32_t kMost = 2048;
  DeviceArray<uint16_t> terms;

  explicit Input(int32_t columns) : terms(random(columns)) {}
  const __half* get() const { return reinterpret_cast<const __half*>(terms.get()); }

 private:
  static std::vector<uint16_t> random(int32_t columns) {
    std::vector<uint16_t> x(static_cast<size_t>(kMost) * static_cast<size_t>(padded(columns, kPaddedColumns)));
    std::mt19937 engine(2);
    for (uint16_t& value : x) value = static_cast<uint16_t>(engine() & 0xBBFFU);
    return x;
  }
};

MatmulArgs args_for(const DeviceMatrix& matrix, const Input& x, const DeviceArray<float>& out, int32_t num_rows) {
  return {.matrix = matrix,
          .x = {x.get(), x.get() + 64 * matrix.padded_columns, matrix.padded_columns},
          .to = {.out = out.get(),
                 .partial_stride = int64_t{num_rows} * matrix.rows,
                 .stride = matrix.rows,
                 .width = matrix.rows},
          .out_scale = 1.0F,
          .num_rows = num_rows,
          .swiglu = false};
}

void run(const char* name, int32_t rows, int32_t columns) {
  for (const WeightType type : {WeightType::kBf16, WeightType::kQ8_0, WeightType::kAffine4Gs32}) {
    const Weights weights(type, rows, columns);
    const auto count = static_cast<int32_t>(weights.copies.size());
    const Input x(columns);
    const DeviceArray<float> out(static_cast<size_t>(int64_t{rows} * 64 * kNumSlices));
    for (const int32_t num_rows : {1, 2, 8, 16, 32, 64}) {
      const auto call = [&](int32_t i, const LaunchContext& context) {
        const DeviceMatrix& matrix = weights.copies[static_cast<size_t>(i % count)];
        const MatmulArgs args = args_for(matrix, x, out, num_rows);
        return generated_matmul(args, plan_generated_matmul(matrix, num_rows, kSms), context);
      };
      const float us = time_us(4 * count, call);
      std::printf("%-10s type %d %5d rows: %8.2f us %7.0f GB/s\n", name, static_cast<int>(type), num_rows, us,
                  bytes_of(weights.copies.front()) / us * 1e-3);
    }
  }
}

// Every width of a tile of tokens, the planned one marked. gates: gate and up, whose activation leaves instead of them.
void run_prompts(const char* name, int32_t rows, int32_t columns, bool gates = false) {
  const Weights weights(WeightType::kBf16, rows, columns);
  const auto count = static_cast<int32_t>(weights.copies.size());
  const Input x(columns);
  const DeviceArray<float> out(static_cast<size_t>(int64_t{rows} * Input::kMost));
  for (const int32_t num_rows : {64, 256, 512, 1024, 2048}) {
    MatmulArgs args = args_for(weights.copies.front(), x, out, num_rows);
    if (gates) {
      args.swiglu = true;
      args.to = {.high = reinterpret_cast<__half*>(out.get()), .stride = rows / 2, .width = rows / 2};
    }
    for (const int32_t tokens : kPromptTileTokens) {
      const float us = time_us(4 * count, [&](int32_t i, const LaunchContext& context) {
        args.matrix = weights.copies[static_cast<size_t>(i % count)];
        return prompt_matmul_wgmma(args, tokens, kSms, context);
      });
      std::printf("%-12s %5d rows, tiles of %3d%c %8.2f us %6.1f TFLOP/s\n", name, num_rows, tokens,
                  tokens == plan_prompt_matmul(args, kSms) ? '*' : ':', us, 2e-6 * rows * columns * num_rows / us);
    }
  }
}

// What of a plan is to be another than planned; 0: as planned.
struct Variant {
  const char* name;
  bool many = false;  // the kernel that leaves partial sums, and the one that gates them
  int32_t mates = 0, row_tiles = 0;
  int32_t blocks_of_sm = 0, stages = 0;
};

GeneratedPlan plan_for(const DeviceMatrix& matrix, int32_t num_rows, const Variant& variant) {
  if (variant.many) return plan_many_rows(matrix, kSms);
  GeneratedPlan plan = plan_generated_matmul(matrix, num_rows, kSms);
  if (plan.stream.num_blocks > 0 && variant.stages > 0) {
    plan.stream.num_blocks = std::min(variant.blocks_of_sm * kSms, matrix.padded_rows / kTileRows);
    plan.stream.stages = std::min(variant.stages, most_stream_stages(matrix, num_rows, variant.blocks_of_sm));
  }
  ClusterPlan& cluster = plan.cluster;
  if (cluster.num_clusters == 0) return plan;
  const ClusterPlan planned = cluster;
  if (variant.row_tiles > 0) cluster.row_tiles = std::min(variant.row_tiles, cluster_most_row_tiles(cluster.tokens));
  if (variant.mates > 0) cluster.mates = variant.mates;
  cluster.num_clusters = planned.num_clusters * planned.mates / cluster.mates;
  return plan;
}

// The four products of a layer, one after the other, each waiting for the one before as in a model.
struct Layer {
  std::vector<Weights> products;
  Input x;
  int32_t ffn;
  double bytes = 0;
  DeviceArray<float> out;
  DeviceArray<__half> activated;

  Layer(WeightType type, int32_t hidden, int32_t query_width, int32_t qkv_width, int32_t ffn_width)
      : x(std::max(ffn_width, query_width)),
        ffn(ffn_width),
        out(static_cast<size_t>(int64_t{2 * ffn_width} * 64 * kNumSlices)),
        activated(static_cast<size_t>(padded(ffn_width, kPaddedColumns) * 128)) {
    products.emplace_back(type, qkv_width, hidden);
    products.emplace_back(type, hidden, query_width);
    products.emplace_back(type, 2 * ffn, hidden);
    products.emplace_back(type, hidden, ffn);
    for (const Weights& weights : products) bytes += bytes_of(weights.copies.front());
  }

  float time(int32_t num_rows, const Variant& variant) const {
    return 4 * time_us(4 * 24, [&](int32_t i, const LaunchContext& context) {
             const auto& copies = products[static_cast<size_t>(i % 4)].copies;
             return multiply(copies[static_cast<size_t>(i / 4) % copies.size()], i % 4 == 2, num_rows, variant,
                             context);
           });
  }
  // One of them, over and over.
  float time_of(int32_t product, int32_t num_rows, const Variant& variant) const {
    const auto& copies = products[static_cast<size_t>(product)].copies;
    return time_us(24, [&](int32_t i, const LaunchContext& context) {
      return multiply(copies[static_cast<size_t>(i) % copies.size()], product == 2, num_rows, variant, context);
    });
  }

 private:
  cudaError_t multiply(const DeviceMatrix& matrix, bool gates, int32_t num_rows, const Variant& variant,
                       const LaunchContext& context) const {
    MatmulArgs args = args_for(matrix, x, out, num_rows);
    const GeneratedPlan plan = plan_for(matrix, num_rows, variant);
    const auto stride = static_cast<int32_t>(padded(ffn, kPaddedColumns));
    __half* low = activated.get() + int64_t{stride} * 64;
    if (gates && plan.num_partials == 1) {
      args.swiglu = true;
      args.to = {.high = activated.get(), .low = low, .stride = stride, .width = ffn};
    }
    const cudaError_t error = generated_matmul(args, plan, context);
    if (!gates || plan.num_partials == 1 || error != cudaSuccess) return error;
    return swiglu({args.to.out, args.to.partial_stride, plan.num_partials, args.to.stride, activated.get(), low,
                   num_rows, ffn, stride},
                  {context.stream, true});
  }
};

void run_layer(const char* name, int32_t hidden, int32_t query_width, int32_t qkv_width, int32_t ffn,
               std::initializer_list<int32_t> rows, std::initializer_list<Variant> variants) {
  for (const WeightType type : {WeightType::kBf16, WeightType::kQ8_0, WeightType::kAffine4Gs32}) {
    const Layer layer(type, hidden, query_width, qkv_width, ffn);
    for (const int32_t num_rows : rows) {
      for (const Variant& variant : variants) {
        const float us = layer.time(num_rows, variant);
        std::printf("%-10s type %d %5d rows, %-20s %8.2f us a layer, %7.0f GB/s\n", name, static_cast<int>(type),
                    num_rows, variant.name, us, layer.bytes / us * 1e-3);
      }
    }
  }
}

// How the streaming kernel is cut.
void run_streams(const char* name, int32_t hidden, int32_t query_width, int32_t qkv_width, int32_t ffn) {
  for (const WeightType type : {WeightType::kBf16, WeightType::kQ8_0, WeightType::kAffine4Gs32}) {
    const Layer layer(type, hidden, query_width, qkv_width, ffn);
    const auto print = [&](const Variant& variant) {
      std::printf("%-10s type %d, %d blocks, %d stages: layer %7.2f us; qkv, out, gate and up, down:", name,
                  static_cast<int>(type), variant.blocks_of_sm, variant.stages, layer.time(1, variant));
      for (int32_t i = 0; i < 4; ++i) std::printf(" %6.2f", layer.time_of(i, 1, variant));
      std::printf("\n");
    };
    print({.name = "planned"});
    for (const int32_t blocks : {1, 2, 3}) {
      for (const int32_t stages : {2, 3, 4, 6, 8}) {
        print({.name = "stream", .blocks_of_sm = blocks, .stages = stages});
      }
    }
  }
}

// The shapes of the cluster kernel, one product after the other.
void run_shapes(const char* name, int32_t rows, int32_t columns, WeightType type) {
  const Weights weights(type, rows, columns);
  const auto count = static_cast<int32_t>(weights.copies.size());
  const Input x(columns);
  const DeviceArray<float> out(static_cast<size_t>(int64_t{rows} * 64 * kNumSlices));
  const auto measure = [&](int32_t num_rows, const Variant& variant) {
    const float us = time_us(2 * count, [&](int32_t i, const LaunchContext& context) {
      const DeviceMatrix& matrix = weights.copies[static_cast<size_t>(i % count)];
      return generated_matmul(args_for(matrix, x, out, num_rows), plan_for(matrix, num_rows, variant), context);
    });
    const ClusterPlan plan = plan_for(weights.copies.front(), num_rows, variant).cluster;
    std::printf(
        "%-10s type %d %3d rows, %-8s %2d tokens, %d tiles, %d mates, %3d clusters: %8.2f us "
        "%6.0f GB/s\n",
        name, static_cast<int>(type), num_rows, variant.name, plan.tokens, plan.row_tiles, plan.mates,
        plan.num_clusters, us, bytes_of(weights.copies.front()) / us * 1e-3);
  };
  for (const int32_t num_rows : {16, 32, 64}) {
    measure(num_rows, {.name = "many", .many = true});
    measure(num_rows, {.name = "planned"});
    for (int32_t row_tiles = 1; row_tiles <= cluster_most_row_tiles(num_rows); ++row_tiles) {
      for (const int32_t mates : {1, 2}) measure(num_rows, {.name = "shape", .mates = mates, .row_tiles = row_tiles});
    }
  }
}

void run_layers(std::initializer_list<int32_t> rows, std::initializer_list<Variant> variants) {
  run_layer("4B layer", 2560, 4096, 6144, 9728, rows, variants);
  run_layer("0.6B layer", 1024, 2048, 4096, 3072, rows, variants);
}

}  // namespace
}  // namespace kipp::cuda

// layer: only the products of a layer, one kernel beside the other; streams, shapes: cuts of the streaming kernel,
// shapes of the cluster kernel; prompts: only products of prompt rows.
int main(int count, char** arguments) {
  using kipp::WeightType;
  using kipp::cuda::run;
  using kipp::cuda::run_prompts;
  std::setvbuf(stdout, nullptr, _IOLBF, 1 << 12);  // what is printed is seen even if the rest is not
  const char* what = count > 1 ? arguments[1] : "";
  if (std::strcmp(what, "layer") == 0) {
    kipp::cuda::run_layers(
        {16, 32, 64},
        {{.name = "partial sums", .many = true}, {.name = "clusters"}, {.name = "clusters, one mate", .mates = 1}});
    return 0;
  }
  if (std::strcmp(what, "streams") == 0) {
    kipp::cuda::run_streams("4B", 2560, 4096, 6144, 9728);
    kipp::cuda::run_streams("0.6B", 1024, 2048, 4096, 3072);
    return 0;
  }
  if (std::strcmp(what, "shapes") == 0) {
    for (const WeightType type : {WeightType::kBf16, WeightType::kQ8_0, WeightType::kAffine4Gs32}) {
      kipp::cuda::run_shapes("4B qkv", 6144, 2560, type);
      kipp::cuda::run_shapes("4B out", 2560, 4096, type);
      kipp::cuda::run_shapes("4B gateup", 19456, 2560, type);
      kipp::cuda::run_shapes("4B down", 2560, 9728, type);
    }
    return 0;
  }
  if (std::strcmp(what, "prompts") != 0) {
    kipp::cuda::run_layers({1, 2, 4, 8, 16, 32, 64}, {{.name = ""}});
    run("4B qkv", 6144, 2560);
    run("4B out", 2560, 4096);
    run("4B gateup", 19456, 2560);
    run("4B down", 2560, 9728);
    run("0.6B qkv", 4096, 1024);
    run("0.6B out", 1024, 2048);
    run("0.6B gateup", 6144, 1024);
    run("0.6B down", 1024, 3072);
    run("4B head", 151936, 2560);
  }
  run_prompts("4B qkv", 6144, 2560);
  run_prompts("4B out", 2560, 4096);
  run_prompts("4B gateup", 19456, 2560, true);
  run_prompts("4B down", 2560, 9728);
  run_prompts("0.6B qkv", 4096, 1024);
  run_prompts("0.6B out", 1024, 2048);
  run_prompts("0.6B gateup", 6144, 1024, true);
  run_prompts("0.6B down", 1024, 3072);
  return 0;
}
