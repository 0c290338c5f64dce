// A shared object as the loader expects it, whose backend can never be made.
#include <fmt/format.h>

#include <memory>

#include "backend/backend.h"

extern "C" kipp::Result<std::unique_ptr<kipp::Backend>>* kipp_create_backend(const kipp::BackendOptions* options) {
  return new kipp::Result<std::unique_ptr<kipp::Backend>>(
      kipp::make_error(kipp::ErrorCode::kUnsupported, fmt::format("refused: device {}", options->device)));
}
