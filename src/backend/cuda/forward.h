// Qwen3's forward pass on the device, as a sequence of kernel launches. The order of buffers: backend/cuda/workspace.h.
#pragma once

#include "backend/cuda/kernel_sequence.h"
#include "backend/cuda/step_tables.h"

namespace kipp::cuda {

// Enqueues a whole step: tables lie on the device. Logits of head row r go to workspace.logits + r · vocab.
Result<void> forward_pass(const PassContext& context, const StepShape& shape, const StepTables& tables,
                          KernelCounts& counts);

}  // namespace kipp::cuda
