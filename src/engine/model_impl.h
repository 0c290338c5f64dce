// What Model and Session hold. Order of members: the backend reads the file, so it goes first.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "gguf/model_file.h"
#include "kipp/engine.h"
#include "kipp/tokenizer.h"
#include "kv/block_pool.h"

namespace kipp {

struct Model::Impl {
  ModelFile file;
  Tokenizer tokenizer;
  Limits limits;
  std::unique_ptr<Backend> backend;
  BlockPool pool;
};

struct Session::Impl {
  Model::Impl* model;
  BlockTable table;             // blocks of the positions below tokens.size()
  std::vector<int32_t> tokens;  // held: their K and V are in the blocks
  std::vector<float> logits;    // [vocab] after the last token, or empty
  // Those of an evaluation under way: they change places with `logits` once all of it has succeeded. Memory that is
  // taken anew for each token costs a tenth of a small model's step on many cores.
  std::vector<float> next_logits = {};
};

}  // namespace kipp
