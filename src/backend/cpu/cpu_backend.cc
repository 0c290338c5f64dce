// Puts kernels, threads and the shared forward pass together.
#include "backend/cpu/cpu_backend.h"

#include <fmt/format.h>

#include <cstdlib>
#include <system_error>

#include "backend/cpu/cpu_operators.h"
#include "backend/cpu/isa.h"
#include "backend/host/host_backend.h"

namespace kipp {

Result<std::unique_ptr<Backend>> create_cpu_backend(const BackendOptions& options) {
  const char* forced = std::getenv("KIPP_CPU_ISA");
  auto kernels = cpu::choose_kernels(forced == nullptr ? "" : forced);
  if (!kernels) {
    return make_error(kernels.error().code, fmt::format("KIPP_CPU_ISA: {}", kernels.error().message));
  }
  KIPP_ASSIGN(const int32_t num_threads, host::choose_threads("cpu", options));
  try {
    return host::make_host_backend(
        "cpu", std::make_unique<cpu::CpuOperators>(**kernels, options.precision, num_threads), options.round_kv);
  } catch (const std::system_error& error) {
    return make_error(ErrorCode::kCapacity,
                      fmt::format("cpu: {} threads cannot be started: {}", num_threads, error.what()));
  }
}

}  // namespace kipp
