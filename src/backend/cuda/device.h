// Errors of the CUDA runtime as values, and memory that knows its owner.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "kipp/error.h"

namespace kipp::cuda {

// kCapacity for memory that is not to be had, kUnsupported for a driver or device that is not there, else kInternal.
Result<void> check(cudaError_t error, std::string_view doing);

struct DeviceFree {
  static void release(void* pointer) { cudaFree(pointer); }
};
struct PinnedFree {
  static void release(void* pointer) { cudaFreeHost(pointer); }
};

template <typename Free>
class Memory {
 public:
  Memory() = default;
  Memory(void* data, size_t bytes) : data_(static_cast<std::byte*>(data)), bytes_(bytes) {}
  Memory(Memory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Memory& operator=(Memory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    if (data_ != nullptr) Free::release(data_);
  }

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};
using DeviceMemory = Memory<DeviceFree>;
using PinnedMemory = Memory<PinnedFree>;

// Zeroed. what: for the error, "the KV pool".
Result<DeviceMemory> allocate_device(size_t bytes, std::string_view what);
Result<PinnedMemory> allocate_pinned(size_t bytes, std::string_view what);

// Hands out pieces of one allocation, each aligned to 256 bytes. With no memory behind it, it only counts.
class Arena {
 public:
  static constexpr size_t kAlignment = 256;

  explicit Arena(std::byte* memory = nullptr) : memory_(memory) {}

  template <typename T>
  T* take(size_t count) {
    std::byte* piece = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += (count * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    return reinterpret_cast<T*>(piece);
  }
  size_t used() const { return used_; }

 private:
  std::byte* memory_;
  size_t used_ = 0;
};

class Stream {
 public:
  static Result<Stream> create();
  Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream();

  cudaStream_t get() const { return stream_; }
  Result<void> wait() const;

 private:
  explicit Stream(cudaStream_t stream) : stream_(stream) {}
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  Event() = default;  // none
  // flags: cudaEventDefault for one that takes the time.
  static Result<Event> create(uint32_t flags = cudaEventDisableTiming);
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() {
    if (event_ != nullptr) cudaEventDestroy(event_);
  }

  cudaEvent_t get() const { return event_; }

 private:
  explicit Event(cudaEvent_t event) : event_(event) {}
  cudaEvent_t event_ = nullptr;
};

// What a backend must know of its device.
struct Device {
  int32_t index = 0;
  int32_t num_sms = 0;
  int32_t major = 0, minor = 0;
  size_t free_bytes = 0;
  std::string name;
  std::string driver_cuda, runtime_cuda;  // versions of CUDA, "13.0"
  std::string description;                // all of these but the free memory, in words

  bool has_wgmma() const { return major == 9 && minor == 0; }
  bool can_overlap() const { return major >= 9; }
};

// Makes the device current for this thread. Errors: kUnsupported (no driver, no device, too old), kInvalidArgument (no
// such index), each with what was found.
Result<Device> open_device(int32_t index);

}  // namespace kipp::cuda

#define KIPP_CUDA_TRY(expression, doing) KIPP_TRY(::kipp::cuda::check((expression), (doing)))
