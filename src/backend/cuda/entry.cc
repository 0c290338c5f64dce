// What the shared object exports: the symbols by which the loader makes a backend and the probe of its machine. Both
// sides come from one build.
#include <memory>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/limit_probe.h"

#define KIPP_EXPORT extern "C" __attribute__((visibility("default")))

KIPP_EXPORT kipp::Result<std::unique_ptr<kipp::Backend>>* kipp_create_backend(const kipp::BackendOptions* options) {
  return new kipp::Result<std::unique_ptr<kipp::Backend>>(kipp::create_cuda_backend(*options));
}

KIPP_EXPORT kipp::Result<std::unique_ptr<kipp::LimitProbe>>* kipp_create_limit_probe(
    const kipp::BackendOptions* options) {
  return new kipp::Result<std::unique_ptr<kipp::LimitProbe>>(kipp::create_cuda_probe(*options));
}
