// The argmax path after what a session holds.
#pragma once

#include <cstdint>
#include <vector>

#include "gates/cancel.h"
#include "kipp/engine.h"
#include "kipp/error.h"

namespace kipp::gates {

// `count` ids by the sampler at temperature 0, appended one by one except the last. The
// session must have logits.
Result<std::vector<int32_t>> greedy_ids(Session& session, int32_t count, const CancelCheck& is_cancelled = {});

}  // namespace kipp::gates
