// The scalar reference backend: the forward pass as the paper would print it. Every other backend answers to it.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "kipp/error.h"

namespace kipp {

// Errors: kInvalidArgument (options.num_threads, options.device).
Result<std::unique_ptr<Backend>> create_oracle_backend(const BackendOptions& options);

}  // namespace kipp
