// Token-by-token decoding of known ids, compared row by row with logits known from elsewhere.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gates/cancel.h"
#include "gates/metrics.h"
#include "kipp/engine.h"
#include "kipp/error.h"

namespace kipp::gates {

// Logits of every position of `ids` in one stateless pass: 600 KB each, as many rows as ids.
Result<std::vector<std::vector<float>>> stateless_rows(Model& model, std::span<const int32_t> ids);

// Appends ids[session.length()…] one at a time, as generated tokens, and compares each position's logits with rows.
Result<Comparison> compare_decode(Session& session, std::span<const int32_t> ids,
                                  std::span<const std::vector<float>> rows, const NearTieRule& rule,
                                  const CancelCheck& is_cancelled = {});

}  // namespace kipp::gates
