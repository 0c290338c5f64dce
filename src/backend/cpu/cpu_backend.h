// The cpu backend: the shared forward pass on vector kernels, chosen for the machine when it starts.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "kipp/error.h"

namespace kipp {

// Without options.isa the environment variable KIPP_CPU_ISA forces an instruction set (backend/cpu/isa.h). Errors:
// kInvalidArgument (options.num_threads, options.device), kNotFound and kUnsupported (the instruction set).
Result<std::unique_ptr<Backend>> create_cpu_backend(const BackendOptions& options);

}  // namespace kipp
