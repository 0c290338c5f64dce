// The backend contract for everything that computes in host memory: one forward pass and one KV pool for all of them;
// what differs are the operators.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "backend/backend.h"
#include "backend/host/operators.h"
#include "kipp/error.h"

namespace kipp::host {

// name: for messages. round_kv: BackendOptions::round_kv.
std::unique_ptr<Backend> make_host_backend(std::string_view name, std::unique_ptr<Operators> ops, bool round_kv);

// The number of threads that the options ask for. Errors: kInvalidArgument (options.num_threads, options.device).
Result<int32_t> choose_threads(std::string_view name, const BackendOptions& options);

}  // namespace kipp::host
