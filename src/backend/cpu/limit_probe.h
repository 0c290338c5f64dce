// The limits of the host, for every backend that computes there.
#pragma once

#include <memory>
#include <span>

#include "backend/backend_machine.h"
#include "kipp/error.h"

namespace kipp {

// Of the instruction set that the options name (else KIPP_CPU_ISA, else the machine's best) and as many threads.
// Errors: kNotFound and kUnsupported (the instruction set), kInvalidArgument (options), kCapacity (memory, threads).
Result<std::unique_ptr<LimitProbe>> create_cpu_probe(const BackendOptions& options,
                                                     std::span<const std::byte> artifact);

}  // namespace kipp
