// The one way into the backend: appends tokens to sessions, all of them or none.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/model_impl.h"
#include "kipp/error.h"

namespace kipp {

struct Evaluation {
  Session::Impl* session;
  std::span<const int32_t> tokens;
  std::span<const int32_t> head_rows;  // ascending indices into tokens: rows that need logits
  RowClass row_class;
};

using RowLogits = std::vector<std::vector<float>>;  // [head_rows][vocab]

// Contract and errors: Model::step in kipp/engine.h. rows: where the logits of all head rows go, one entry for each
// evaluation; null where those of the last token, which the session keeps, are enough.
Result<void> evaluate(Model::Impl& model, std::span<const Evaluation> evaluations, std::vector<RowLogits>* rows);

}  // namespace kipp
