// Matrices as artifacts store them, drawn for the operator tests, with what each stored weight stands for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/weights.h"
#include "ops/operator_fixture.h"

namespace kipp {

struct StoredMatrix {
  WeightType type;
  int32_t rows, columns;
  std::vector<std::byte> data;     // rows × columns, then bytes that read as NaN in every type
  std::vector<double> weights;     // [rows][columns] exactly: scale · q + bias without any rounding
  std::vector<double> magnitudes;  // [rows][columns] |scale · q| + |bias|: what roundings on the way are relative to
};

// Every fp16 that a scale may be occurs, zero and subnormals too. columns: a multiple of 32 but for kBf16.
StoredMatrix draw_matrix(Draw& draw, WeightType type, int32_t rows, int32_t columns);

}  // namespace kipp
