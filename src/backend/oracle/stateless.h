// Stateless evaluation: one pass over a whole prompt with contiguous FP32 K and V. It shares the operators with the
// cached path, but no KV, block or position code, so that comparing the two tests exactly those (Phase 2).
#pragma once

#include <cstdint>
#include <span>

#include "backend/backend.h"
#include "backend/oracle/oracle_model.h"
#include "backend/oracle/threaded_operators.h"
#include "kipp/error.h"

namespace kipp::oracle {

// tokens: at least one, each in [0, vocab). round_kv: K and V are rounded to bf16 as the pool stores them.
// Errors: kCapacity (no memory for the activations).
Result<void> evaluate_stateless(const OracleModel& model, std::span<const int32_t> tokens, bool round_kv,
                                ThreadedOperators& ops, const StatelessObserver& observer);

}  // namespace kipp::oracle
