// The forward pass over a ragged batch with paged KV.
#pragma once

#include <cstdint>
#include <span>

#include "backend/backend.h"
#include "backend/host/host_model.h"
#include "backend/host/kv_storage.h"
#include "backend/host/operators.h"
#include "backend/host/workspace.h"

namespace kipp::host {

// A validated batch whose token ids lie in Workspace::ids.
struct StepInput {
  std::span<const Span> spans;
  int32_t num_tokens;                  // T
  std::span<const int32_t> head_rows;  // [R]
};

// Leaves the logits of the head rows in Workspace::logits, [R][vocab].
void forward(const HostModel& model, const StepInput& input, KvStorage& kv, Workspace& workspace, Operators& ops);

}  // namespace kipp::host
