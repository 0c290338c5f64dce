// Backend::evaluate_stateless on the device.
#pragma once

#include <span>

#include "backend/cuda/forward.h"

namespace kipp::cuda {

// tokens: valid ids. round_kv is always on. Errors: kCapacity (memory), kInternal.
Result<void> evaluate_stateless(const PassContext& context, QuantScheme scheme, std::span<const int32_t> tokens,
                                const StatelessObserver& observer, KernelCounts& counts);

}  // namespace kipp::cuda
