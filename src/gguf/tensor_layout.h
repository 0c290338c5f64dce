// Which tensors an artifact of given dimensions and scheme holds: one list for the binder, the tests and the tools.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gguf/format.h"
#include "gguf/model_file.h"
#include "model/dimensions.h"
#include "model/weights.h"

namespace kipp::gguf {

struct ExpectedTensor {
  std::string name;                         // as in the file: "blk.3.attn_q.weight"
  WeightView view;                          // all but its offset
  bool is_norm;                             // one dimension in the file; a matrix has two
  std::vector<uint64_t> file_dims() const;  // innermost first: [columns] or [columns, rows]
};

// In the order in which the converter writes them: embedding, layers, final norm, head (only untied).
std::vector<ExpectedTensor> expected_tensors(const Dimensions& dimensions, QuantScheme scheme);

GgmlType ggml_type(WeightType type);

// Bytes of `rows` × `columns` weights; columns is a multiple of 32 in every quantised matrix.
uint64_t weight_bytes(WeightType type, int64_t rows, int64_t columns);

// Puts views, given in the order of expected_tensors, where they belong.
ModelWeights assemble_weights(const Dimensions& dimensions, const std::vector<WeightView>& views);

}  // namespace kipp::gguf
