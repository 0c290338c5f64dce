// How every kernel is started: on a stream, optionally as a programmatic dependent of the kernel before it, so that its
// blocks become resident and fetch what does not depend on that kernel (weights) while it still runs.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace kipp::cuda {

struct LaunchContext {
  cudaStream_t stream = nullptr;
  bool overlap = false;  // programmatic dependent launch; needs compute capability 9.0
};

struct LaunchShape {
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;
  uint32_t cluster = 1;  // blocks that start together and see each other's shared memory; needs compute capability 9.0
};

// Launches `kernel` (a __global__ function, whose dynamic shared memory limit the caller has raised where needed).
template <typename... Parameters, typename... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), const LaunchShape& shape, const LaunchContext& context,
                   Arguments&&... arguments) {
  cudaLaunchAttribute attributes[2]{};
  uint32_t count = 0;
  if (context.overlap) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {shape.cluster, 1, 1};
  }
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = context.stream;
  config.attrs = attributes;
  config.numAttrs = count;
  return cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...);
}

// How many clusters of this shape the current device holds at a time; 0 if none.
template <typename... Parameters>
int32_t max_active_clusters(void (*kernel)(Parameters...), const LaunchShape& shape) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {shape.cluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int count = 0;
  return cudaOccupancyMaxActiveClusters(&count, kernel, &config) == cudaSuccess ? count : 0;
}

#if defined(__CUDACC__)
// Every kernel that may overlap calls both. Until wait_for_previous() returns, nothing that an earlier kernel wrote may
// be read and nothing that it reads may be written; start_next() lets the next kernel's blocks become resident.
__device__ inline void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

__device__ inline void start_next() {
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}
#endif

}  // namespace kipp::cuda
