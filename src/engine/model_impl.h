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
  std::vector<Session::Impl*> unread;  // sessions whose logits still lie in the backend, all of its latest step
};

// Where logits lie that nobody has asked for yet.
struct UnreadLogits {
  StepId step = 0;  // 0: none
  int32_t row = 0;
  int32_t num_rows = 0;  // head rows of the step
  bool drawn = false;    // the backend has drawn from them, which it does once
};

struct Session::Impl {
  explicit Impl(Model::Impl& owner) : model(&owner), table(owner.pool) {}
  ~Impl() { forget_unread(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // Logits are fetched before the backend's next step overwrites them, or when they are asked for. On error they are
  // lost.
  Result<void> read_logits();
  void set_unread(UnreadLogits where);
  void forget_unread();
  void clear_logits();
  bool has_logits() const { return unread.step != 0 || !logits.empty(); }

  Model::Impl* model;
  BlockTable table;             // blocks of the positions below tokens.size()
  std::vector<int32_t> tokens;  // held: their K and V are in the blocks
  // [vocab] after the last token, or empty. Their memory is kept: taken anew for each token it would cost a tenth of a
  // small model's step on many cores.
  std::vector<float> logits;
  UnreadLogits unread;
};

}  // namespace kipp
