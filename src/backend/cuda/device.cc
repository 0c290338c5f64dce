// See device.h. Which codes the runtime's errors become, and which devices are refused.
#include "backend/cuda/device.h"

#include <fmt/format.h>

namespace kipp::cuda {

Result<void> check(cudaError_t error, std::string_view doing) {
  if (error == cudaSuccess) {
    return {};
  }
  ErrorCode code = ErrorCode::kInternal;
  if (error == cudaErrorMemoryAllocation) {
    code = ErrorCode::kCapacity;
  } else if (error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver ||
             error == cudaErrorNoKernelImageForDevice) {
    code = ErrorCode::kUnsupported;
  }
  return make_error(code, fmt::format("cuda: {}: {} ({})", doing, cudaGetErrorString(error), cudaGetErrorName(error)));
}

Result<DeviceMemory> allocate_device(size_t bytes, std::string_view what) {
  void* data = nullptr;
  KIPP_CUDA_TRY(cudaMalloc(&data, bytes), fmt::format("{} bytes of device memory for {}", bytes, what));
  DeviceMemory memory(data, bytes);
  KIPP_CUDA_TRY(cudaMemset(data, 0, bytes), fmt::format("clearing {}", what));
  // Clearing goes on behind this call, on a stream that those of Stream do not wait for.
  KIPP_CUDA_TRY(cudaStreamSynchronize(nullptr), fmt::format("clearing {}", what));
  return memory;
}

Result<PinnedMemory> allocate_pinned(size_t bytes, std::string_view what) {
  void* data = nullptr;
  KIPP_CUDA_TRY(cudaMallocHost(&data, bytes), fmt::format("{} bytes of pinned memory for {}", bytes, what));
  return PinnedMemory(data, bytes);
}

Result<Stream> Stream::create() {
  cudaStream_t stream = nullptr;
  KIPP_CUDA_TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "creating a stream");
  return Stream(stream);
}

Stream::~Stream() {
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

Result<Event> Event::create(uint32_t flags) {
  cudaEvent_t event = nullptr;
  KIPP_CUDA_TRY(cudaEventCreateWithFlags(&event, flags), "creating an event");
  return Event(event);
}

Result<void> Stream::wait() const {
  return check(cudaStreamSynchronize(stream_), "waiting for the device");
}

namespace {

// "13.0" of 13000.
std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace

Result<Device> open_device(int32_t index) {
  int count = 0;
  KIPP_CUDA_TRY(cudaGetDeviceCount(&count),
                fmt::format("no GPU to be found (it takes one of NVIDIA's and a driver for CUDA {} or later)",
                            CUDART_VERSION / 1000));
  if (index < 0 || index >= count) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("cuda: expected a device from 0 to {}, found {}", count - 1, index));
  }
  KIPP_CUDA_TRY(cudaSetDevice(index), fmt::format("device {}", index));
  const auto attribute = [index](cudaDeviceAttr which) -> Result<int32_t> {
    int value = 0;
    KIPP_CUDA_TRY(cudaDeviceGetAttribute(&value, which, index), "reading a device's attributes");
    return value;
  };
  Device device;
  device.index = index;
  KIPP_ASSIGN(device.num_sms, attribute(cudaDevAttrMultiProcessorCount));
  KIPP_ASSIGN(device.major, attribute(cudaDevAttrComputeCapabilityMajor));
  KIPP_ASSIGN(device.minor, attribute(cudaDevAttrComputeCapabilityMinor));
  constexpr int32_t kOldestMajor = 8;
  if (device.major < kOldestMajor) {
    return make_error(ErrorCode::kUnsupported,
                      fmt::format("cuda: device {} has compute capability {}.{}, but Kipp needs {}.0 or later", index,
                                  device.major, device.minor, kOldestMajor));
  }
  int32_t shared_bytes = 0;
  KIPP_ASSIGN(shared_bytes, attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin));
  constexpr int32_t kLeastSharedBytes = 160 * 1024;
  if (shared_bytes < kLeastSharedBytes) {
    return make_error(
        ErrorCode::kUnsupported,
        fmt::format("cuda: a block on device {} has at most {} bytes of shared memory, but Kipp's kernels "
                    "need {}",
                    index, shared_bytes, kLeastSharedBytes));
  }
  cudaDeviceProp properties{};
  KIPP_CUDA_TRY(cudaGetDeviceProperties(&properties, index), "reading a device's properties");
  device.name = properties.name;
  int driver = 0;
  int runtime = 0;
  KIPP_CUDA_TRY(cudaDriverGetVersion(&driver), "asking for the driver's version");
  KIPP_CUDA_TRY(cudaRuntimeGetVersion(&runtime), "asking for the runtime's version");
  device.driver_cuda = version_text(driver);
  device.runtime_cuda = version_text(runtime);
  device.description =
      fmt::format("{}, {} multiprocessors, compute capability {}.{}, driver for CUDA {}, runtime {}", device.name,
                  device.num_sms, device.major, device.minor, device.driver_cuda, device.runtime_cuda);
  size_t total = 0;
  KIPP_CUDA_TRY(cudaMemGetInfo(&device.free_bytes, &total), "asking for free memory");
  return device;
}

}  // namespace kipp::cuda
