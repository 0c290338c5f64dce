// The oracle is the shared forward pass on its own scalar operators.
#include "backend/oracle/oracle_backend.h"

#include <fmt/format.h>

#include <system_error>

#include "backend/host/host_backend.h"
#include "backend/oracle/threaded_operators.h"

namespace kipp {

Result<std::unique_ptr<Backend>> create_oracle_backend(const BackendOptions& options) {
  KIPP_ASSIGN(const int32_t num_threads, host::choose_threads("oracle", options));
  try {
    return host::make_host_backend("oracle", std::make_unique<oracle::ThreadedOperators>(num_threads),
                                   options.round_kv);
  } catch (const std::system_error& error) {
    return make_error(ErrorCode::kCapacity,
                      fmt::format("oracle: {} threads cannot be started: {}", num_threads, error.what()));
  }
}

}  // namespace kipp
