// The limits of a GPU: how fast its memory is read, and how fast the backend's own product of prompt rows runs where
// nothing but the matrix unit holds it up.
#pragma once

#include <memory>

#include "backend/backend_machine.h"
#include "kipp/error.h"

namespace kipp {

// Errors: kUnsupported (no driver or GPU, too old a GPU), kInvalidArgument (options.device), kCapacity naming the
// memory that is needed and free.
Result<std::unique_ptr<LimitProbe>> create_cuda_probe(const BackendOptions& options);

}  // namespace kipp
