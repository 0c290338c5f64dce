// What the cpu backend exports to the operator tests.
#pragma once

#include "backend/cpu/kernels.h"

namespace kipp::cpu {

// The operators of one instruction set and precision, as the forward pass runs them, on one thread.
const OperatorTable& operator_table(const Kernels& kernels, Precision precision);

}  // namespace kipp::cpu
