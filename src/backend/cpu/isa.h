// The instruction sets that the cpu backend has kernels for, and which of them this machine runs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "backend/cpu/kernels.h"
#include "kipp/error.h"

namespace kipp::cpu {

// Names of the sets that this machine and its system can run, the plainest first: "baseline", "avx2", "avx512",
// "avx512_vnni", "amx".
std::vector<std::string_view> supported_isas();

// The kernels of the set of that name, or of the best for this machine where it is empty. "Best" is fixed by the
// processor's features and vendor, so that a machine always computes the same. Errors: kNotFound (no such set),
// kUnsupported (not on this machine), both naming those that would do.
Result<const Kernels*> choose_kernels(std::string_view name);

}  // namespace kipp::cpu
