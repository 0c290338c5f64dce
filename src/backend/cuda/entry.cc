// What the shared object exports: one symbol, by which the loader makes a backend. Both sides come from one build.
#include <memory>

#include "backend/cuda/cuda_backend.h"

extern "C" __attribute__((visibility("default"))) kipp::Result<std::unique_ptr<kipp::Backend>>* kipp_create_backend(
    const kipp::BackendOptions* options) {
  return new kipp::Result<std::unique_ptr<kipp::Backend>>(kipp::create_cuda_backend(*options));
}
