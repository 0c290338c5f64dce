// One buffer serves both: what is read, and in its first part the operands and the result of the product.
#include "backend/cuda/limit_probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>

#include "backend/cuda/device.h"
#include "backend/cuda/kernels/matmul.h"
#include "backend/cuda/kernels/probe.h"

namespace kipp::cuda {
namespace {

constexpr int32_t kSide = 8192;  // of the product
constexpr size_t kMatrixBytes = size_t{kSide} * kSide * sizeof(__half);
constexpr size_t kProductBytes = 2 * kMatrixBytes + size_t{kSide} * kSide * sizeof(float);
constexpr size_t kMostBytes = size_t{4} << 30;  // 80 times the L2 cache of an H200
constexpr int32_t kPasses = 5;

struct Parts {
  Device device;
  Stream stream;
  Event begin, end;
  DeviceMemory buffer, sink;
  MachineFacts facts;
};

class CudaLimitProbe final : public LimitProbe {
 public:
  explicit CudaLimitProbe(Parts parts) : parts_(std::move(parts)) {}

  const MachineFacts& facts() const override { return parts_.facts; }
  Result<LimitRates> measure() const override;
  Result<uint64_t> bytes_in_use() const override;

 private:
  template <typename Launch>
  Result<double> rate(double amount, const Launch& launch) const;
  cudaError_t read(int32_t tiles_per_block) const;
  cudaError_t multiply() const;

  Parts parts_;
};

// The best of a few passes.
template <typename Launch>
Result<double> CudaLimitProbe::rate(double amount, const Launch& launch) const {
  const cudaStream_t stream = parts_.stream.get();
  double best = 0;
  for (int32_t i = 0; i < kPasses; ++i) {
    KIPP_CUDA_TRY(cudaEventRecord(parts_.begin.get(), stream), "measuring the device");
    KIPP_CUDA_TRY(launch(), "measuring the device");
    KIPP_CUDA_TRY(cudaEventRecord(parts_.end.get(), stream), "measuring the device");
    KIPP_TRY(parts_.stream.wait());
    float ms = 0;
    KIPP_CUDA_TRY(cudaEventElapsedTime(&ms, parts_.begin.get(), parts_.end.get()), "measuring the device");
    if (ms > 0) best = std::max(best, amount / (static_cast<double>(ms) * 1e-3));
  }
  return best;
}

cudaError_t CudaLimitProbe::read(int32_t tiles_per_block) const {
  return read_memory({.data = parts_.buffer.data(),
                      .bytes = static_cast<int64_t>(parts_.buffer.bytes()),
                      .tiles_per_block = tiles_per_block,
                      .sink = reinterpret_cast<uint32_t*>(parts_.sink.data())},
                     {.stream = parts_.stream.get()});
}

cudaError_t CudaLimitProbe::multiply() const {
  std::byte* weights = parts_.buffer.data();
  std::byte* activations = weights + kMatrixBytes;
  std::byte* sums = activations + kMatrixBytes;
  const MatmulArgs args{.matrix = {.type = WeightType::kBf16,
                                   .rows = kSide,
                                   .columns = kSide,
                                   .padded_rows = kSide,
                                   .padded_columns = kSide,
                                   .tiles = weights,
                                   .scales = nullptr,
                                   .fp16_scale = 1.0F},
                        .x = {.high = reinterpret_cast<const __half*>(activations), .low = nullptr, .stride = kSide},
                        .to = {.out = reinterpret_cast<float*>(sums), .stride = kSide, .width = kSide},
                        .out_scale = 1.0F,
                        .num_rows = kSide,
                        .swiglu = false};
  return prompt_matmul(args, parts_.device.has_wgmma(), parts_.device.num_sms, {.stream = parts_.stream.get()});
}

Result<LimitRates> CudaLimitProbe::measure() const {
  KIPP_CUDA_TRY(cudaSetDevice(parts_.device.index), "making the device current");
  double read_rate = 0;
  for (const int32_t tiles_per_block : {2, 8}) {  // how many blocks there are changes it by a percent or two
    KIPP_ASSIGN(const double found,
                rate(static_cast<double>(parts_.buffer.bytes()), [&] { return read(tiles_per_block); }));
    read_rate = std::max(read_rate, found);
  }
  constexpr double kOperations = 2.0 * kSide * kSide * kSide;
  KIPP_ASSIGN(const double product_rate, rate(kOperations, [&] { return multiply(); }));
  return LimitRates{.reads = {{"memory", "device memory", read_rate}},
                    .products = {{"fp16_matmul", "the prompt kernel's FP16 product of 8192³", product_rate}},
                    .matrix = 0};
}

Result<uint64_t> CudaLimitProbe::bytes_in_use() const {
  KIPP_CUDA_TRY(cudaSetDevice(parts_.device.index), "making the device current");
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  KIPP_CUDA_TRY(cudaMemGetInfo(&free_bytes, &total_bytes), "asking for free memory");
  const size_t used = total_bytes - free_bytes;
  return uint64_t{used - std::min(used, parts_.buffer.bytes() + parts_.sink.bytes())};
}

// The driver's own version, which the runtime does not tell: empty where the system does not either.
std::string driver_version() {
  std::string version;
  std::ifstream("/sys/module/nvidia/version") >> version;
  return version;
}

Result<MachineFacts> facts_of(const Device& device, size_t probe_bytes) {
  cudaDeviceProp properties{};
  KIPP_CUDA_TRY(cudaGetDeviceProperties(&properties, device.index), "reading a device's properties");
  const std::string capability = fmt::format("{}.{}", device.major, device.minor);
  Json fields = Json::object({{"name", Json::string(device.name)},
                              {"index", Json::number(int64_t{device.index})},
                              {"sms", Json::number(int64_t{device.num_sms})},
                              {"compute_capability", Json::string(capability)},
                              {"memory_bytes", Json::number(static_cast<int64_t>(properties.totalGlobalMem))},
                              {"l2_cache_bytes", Json::number(int64_t{properties.l2CacheSize})},
                              {"driver_cuda", Json::string(device.driver_cuda)},
                              {"runtime_cuda", Json::string(device.runtime_cuda)}});
  if (const std::string version = driver_version(); !version.empty()) {
    fields.set("driver", Json::string(version));
  }
  return MachineFacts{
      .fields = Json::object({{"device", std::move(fields)}}),
      .words = fmt::format("{} (device {}, {} SMs, compute capability {}), CUDA {}, driver's {}", device.name,
                           device.index, device.num_sms, capability, device.runtime_cuda, device.driver_cuda),
      .has_memory = true,
      .probe_bytes = probe_bytes,
      .mapped_bytes = 0};
}

// As much as fits beside what else will be taken: half of what is free.
Result<size_t> choose_bytes(const Device& device) {
  const size_t bytes = std::min(kMostBytes, device.free_bytes / 2) / kProbeTileBytes * kProbeTileBytes;
  if (bytes < kProductBytes) {
    return make_error(ErrorCode::kCapacity,
                      fmt::format("cuda: measuring device {} takes {} bytes, at most half of the free memory: {}",
                                  device.index, kProductBytes, device.free_bytes));
  }
  return bytes;
}

}  // namespace
}  // namespace kipp::cuda

namespace kipp {

Result<std::unique_ptr<LimitProbe>> create_cuda_probe(const BackendOptions& options) {
  using namespace cuda;
  KIPP_ASSIGN(const Device device, open_device(options.device));
  KIPP_ASSIGN(const size_t bytes, choose_bytes(device));
  KIPP_ASSIGN(Stream stream, Stream::create());
  KIPP_ASSIGN(Event begin, Event::create(cudaEventDefault));
  KIPP_ASSIGN(Event end, Event::create(cudaEventDefault));
  KIPP_ASSIGN(DeviceMemory buffer, allocate_device(bytes, "measuring the device"));
  KIPP_ASSIGN(DeviceMemory sink, allocate_device(sizeof(uint32_t), "measuring the device"));
  KIPP_ASSIGN(MachineFacts facts, facts_of(device, bytes));
  KIPP_CUDA_TRY(fill_numbers({buffer.data(), static_cast<int64_t>(bytes)}, {.stream = stream.get()}),
                "measuring the device");
  KIPP_TRY(stream.wait());
  return std::make_unique<CudaLimitProbe>(Parts{device, std::move(stream), std::move(begin), std::move(end),
                                                std::move(buffer), std::move(sink), std::move(facts)});
}

}  // namespace kipp
