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
  const char* variable = std::getenv("KIPP_CPU_ISA");
  const bool from_variable = options.isa.empty() && variable != nullptr;
  const auto kernels = cpu::choose_kernels(from_variable ? variable : std::string_view(options.isa));
  if (!kernels) {
    return make_error(kernels.error().code,
                      fmt::format("cpu: {}{}", from_variable ? "KIPP_CPU_ISA: " : "", kernels.error().message));
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
