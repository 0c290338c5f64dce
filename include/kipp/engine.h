// Model and Session: load an artifact on a backend, evaluate tokens, read logits, sample.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kipp/error.h"
#include "kipp/precision.h"
#include "kipp/sampling.h"
#include "kipp/tokenizer.h"

namespace kipp {

struct ArtifactInfo;
class Backend;
class BatchEngine;
class Session;

struct ModelOptions {
  std::string backend = "cpu";
  Precision precision = Precision::kDefault;
  std::string isa = {};     // cpu: the instruction set to run on; empty: that of KIPP_CPU_ISA, or the machine's best
  int32_t num_threads = 0;  // 0: the processors this process may use
  int32_t context = 0;      // positions a session may hold; 0: min(the checkpoint's, 4096)
  int32_t num_blocks = 0;   // KV blocks of 32 positions in the pool; 0: enough for one session, or as kv_share says
  // With num_blocks 0: how much of the memory that weights and workspace leave the pool may take, above 0 and at most
  // 1. It takes no more than max_sequences contexts. 0: off.
  double kv_share = 0;
  int32_t max_sequences = 64;  // of a step
  int32_t device = 0;          // cuda: which GPU
  bool allow_synthetic = false;
  bool copy_weights = false;  // into huge pages of the process; else the file is mapped and used where it is
  std::function<void(uint64_t copied, uint64_t size)> on_copied = {};  // bytes so far and in all; also of an upload
  bool round_kv = true;                                                // test switch: false keeps K and V in FP32
  uint64_t placement_seed = 0;  // test switch: not 0 hands out the pool's blocks in an order drawn from it
};

// An artifact on a backend, with its tokenizer and its KV pool. Not thread-safe: one thread drives a model.
class Model {
 public:
  // Errors: those of ModelFile::open, Tokenizer::create and Backend::load; kCapacity when context exceeds the
  // checkpoint's.
  static Result<std::unique_ptr<Model>> open(const std::filesystem::path& artifact, const ModelOptions& options);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const ArtifactInfo& info() const;
  const Tokenizer& tokenizer() const;
  Backend& backend();       // stateless evaluation, operators, blocks: for gates and tests
  int32_t context() const;  // positions a session may hold
  int32_t num_free_blocks() const;

  Result<Session> new_session();

  // One request of a batched step: tokens appended to a session. head_rows: indices into tokens that need logits.
  struct StepRequest {
    Session* session;
    std::span<const int32_t> tokens;
    std::span<const int32_t> head_rows;
    bool generated = false;  // the tokens were sampled (row class), not part of a prompt
  };
  // Evaluates several sessions together, in as few steps of the backend as its limits allow. A session's logits() are
  // then those of its last token if that was a head row, else empty. Errors leave every session as it was (kCapacity:
  // context or pool; kInvalidArgument, naming request and index: no tokens, token id, head rows not ascending or out of
  // range, a session of another model or named twice).
  Result<void> step(std::span<const StepRequest> requests);
  // The same with the logits of every head row: [i][j] is [vocab] for head row j of request i.
  Result<std::vector<std::vector<std::vector<float>>>> step_all_logits(std::span<const StepRequest> requests);

  struct Impl;                                 // src/engine/model_impl.h
  explicit Model(std::unique_ptr<Impl> impl);  // for tests: of parts of their own

 private:
  friend class BatchEngine;  // src/engine/batch_engine.h
  friend class Session;
  Result<void> run(std::span<const StepRequest> requests, std::vector<std::vector<std::vector<float>>>* rows);
  std::unique_ptr<Impl> impl_;
};

// One sequence with its KV. Must not outlive its model. Movable.
class Session {
 public:
  // Evaluates tokens after those already held and keeps their KV. Prompts longer than a step are cut into chunks: the
  // result does not depend on it. Afterwards logits() is that of the last token.
  // Errors leave the session as it was: kInvalidArgument (empty, bad id), kCapacity (position, context; blocks).
  Result<void> append(std::span<const int32_t> tokens, bool generated = false);
  // The same with the logits of every row: [tokens.size()][vocab].
  Result<std::vector<std::vector<float>>> append_all_logits(std::span<const int32_t> tokens, bool generated = false);

  // [vocab] after the last appended token; empty on a fresh or truncated session, and if the device failed. A backend
  // with memory of its own is asked for them only here, at most once a step.
  std::span<const float> logits() const;
  // Draws the next token from logits() at position length(). Errors: kNumerical (NaN), kInvalidArgument (parameters,
  // nothing left).
  Result<SampledToken> sample(const SampleRequest& request) const;

  int32_t length() const;  // positions held
  std::span<const int32_t> tokens() const;
  // Forgets every position from `new_length` on. Errors: kInvalidArgument if it exceeds the session's.
  Result<void> truncate(int32_t new_length);
  void reset();
  // Test hook: the sequence's block ids in position order.
  std::span<const int32_t> block_table() const;

  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  ~Session();

  struct Impl;  // src/engine/model_impl.h

 private:
  friend class Model;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kipp
