// What the tests of CUDA kernels share: a fixture that skips without a GPU, and host data that visits the device.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <random>
#include <utility>
#include <vector>

namespace kipp::cuda {

#define KIPP_CUDA_OK(expression)                                                    \
  do {                                                                              \
    const cudaError_t kipp_cuda_error = (expression);                               \
    ASSERT_EQ(kipp_cuda_error, cudaSuccess) << cudaGetErrorString(kipp_cuda_error); \
  } while (false)

class CudaTest : public testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
      GTEST_SKIP() << "no CUDA device here";
    }
  }
  // Errors of a kernel itself come late.
  void TearDown() override {
    if (!IsSkipped()) {
      KIPP_CUDA_OK(cudaDeviceSynchronize());
    }
  }
};

// A device copy of a vector. Allocation failures end the test program: nothing else can be tested then.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t count) : size_(count) { check(cudaMalloc(&data_, count * sizeof(T) + 16)); }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    check(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  DeviceArray(DeviceArray&& other) noexcept : data_(std::exchange(other.data_, nullptr)), size_(other.size_) {}
  ~DeviceArray() { cudaFree(data_); }

  T* get() const { return data_; }
  std::vector<T> read() const {
    std::vector<T> values(size_);
    check(cudaMemcpy(values.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  static void check(cudaError_t error) {
    if (error != cudaSuccess) {
      ADD_FAILURE() << cudaGetErrorString(error);
      std::abort();
    }
  }
  T* data_ = nullptr;
  size_t size_ = 0;
};

inline std::vector<float> uniform_floats(uint64_t seed, size_t count, float magnitude = 1.0F) {
  std::mt19937_64 engine(seed);
  std::uniform_real_distribution<float> draw(-magnitude, magnitude);
  std::vector<float> values(count);
  for (float& value : values) {
    value = draw(engine);
  }
  return values;
}

}  // namespace kipp::cuda
