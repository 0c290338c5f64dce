// The CUDA backend. Lives in a shared object, so that one build runs with and without a GPU: the loader opens it at run
// time and asks for the symbols of entry.cc.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "kipp/error.h"

namespace kipp {

// Errors: kUnsupported (no driver or GPU, too old a GPU; round_kv off), kInvalidArgument (options.device).
Result<std::unique_ptr<Backend>> create_cuda_backend(const BackendOptions& options);

}  // namespace kipp
