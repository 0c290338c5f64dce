// A contract to copy (docs/add-an-operator.md): an operator that Kipp does not run, declared as the others are in
// src/model/operators.h and src/backend/oracle/ops/operators.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/thread_pool.h"

namespace kipp {

// out[r][c] = gelu(gate[r][c]) · up[r][c], gelu(x) = x / (1 + exp(-y)), y = sqrt(8/π) · (x + 0.044715 · x³): the form
// with tanh of Hendrycks & Gimpel 2016, gated as in Shazeer 2020. Every step in FP32; no sum over elements. out may
// equal gate or up if their strides are equal too.
struct GegluArgs {
  const float* gate;  // [rows][columns], row stride gate_stride
  const float* up;    // [rows][columns], row stride up_stride
  float* out;         // [rows][columns], row stride out_stride
  int32_t rows, columns;
  ptrdiff_t gate_stride, up_stride, out_stride;
};

namespace oracle {

void geglu(const GegluArgs& args);
void threaded_geglu(ThreadPool& threads, const GegluArgs& args);  // split by row

}  // namespace oracle
}  // namespace kipp
