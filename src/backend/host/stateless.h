// Stateless evaluation: one pass over a whole prompt with contiguous FP32 K and V. It shares the operators with the
// cached path, but no KV, block or position code, so that comparing the two tests exactly those (Phase 2).
#pragma once

#include <cstdint>
#include <span>

#include "backend/backend.h"
#include "backend/host/host_model.h"
#include "backend/host/operators.h"
#include "kipp/error.h"

namespace kipp::host {

// tokens: at least one, each in [0, vocab). round_kv: K and V are rounded to bf16 as the pool stores them.
// Errors: kCapacity (no memory for the activations).
Result<void> evaluate_stateless(const HostModel& model, std::span<const int32_t> tokens, bool round_kv, Operators& ops,
                                const StatelessObserver& observer);

}  // namespace kipp::host
