// The forward pass over a ragged batch with paged KV.
#pragma once

#include <cstdint>
#include <span>

#include "backend/backend.h"
#include "backend/oracle/kv_storage.h"
#include "backend/oracle/oracle_model.h"
#include "backend/oracle/threaded_operators.h"
#include "backend/oracle/workspace.h"

namespace kipp::oracle {

// A validated batch whose token ids lie in Workspace::ids.
struct StepInput {
  std::span<const Span> spans;
  int32_t num_tokens;                  // T
  std::span<const int32_t> head_rows;  // [R]
};

// Leaves the logits of the head rows in Workspace::logits, [R][vocab].
void forward(const OracleModel& model, const StepInput& input, KvStorage& kv, Workspace& workspace,
             ThreadedOperators& ops);

}  // namespace kipp::oracle
