// A backend that says what a test wants said. Its KV is the tokens themselves: what follows is looked up by all that a
// row's blocks hold, so a wrong block, copy or position gives another text.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "kipp/engine.h"

namespace kipp::testing {

// What follows a prompt: the tokens of each choice (the last script for choices beyond), then the stop token.
struct Script {
  std::vector<int32_t> prompt;
  std::vector<std::vector<int32_t>> choices;
  std::optional<size_t> breaks_at = {};  // before this many tokens a logit is not finite
};

class ScriptedBackend final : public Backend {
 public:
  // stop_token: what follows where no script says more.
  explicit ScriptedBackend(int32_t stop_token) : stop_token_(stop_token) {}

  void add(Script script);
  // Steps wait until open_gate(), or until `steps` more have passed.
  void close_gate(int32_t steps = 0);
  void open_gate();
  // Waits until a step stands at the closed gate.
  void wait_at_gate();

  uint64_t num_steps() const { return num_steps_; }
  uint64_t num_prompt_rows() const { return num_prompt_rows_; }        // evaluated as part of a prompt
  uint64_t num_generated_rows() const { return num_generated_rows_; }  // evaluated as part of an answer

  Result<MemoryPlan> plan(const ModelFile&, const Limits&) const override { return unused(); }
  Result<void> load(const ModelFile& file, const Limits& limits, int32_t num_blocks) override;
  Result<StepId> forward(const Batch& batch) override;
  Result<void> sample(StepId step, std::span<const SampleRow> rows) override;
  Result<void> collect(StepId step, std::span<RowResult> results) override;
  Result<void> logits(StepId step, int32_t row, std::span<float> out) override;
  Result<void> evaluate_stateless(std::span<const int32_t>, const StatelessObserver&) override { return unused(); }
  Result<void> copy_blocks(std::span<const int32_t> from, std::span<const int32_t> to) override;
  Result<void> read_block(int32_t, KvBlock&) const override { return unused(); }
  Result<void> write_block(int32_t, const KvBlock&) override { return unused(); }
  int32_t preferred_tokens_per_step() const override { return 64; }
  Report report() const override { return {.backend = "scripted", .kernels = {}}; }
  const OperatorTable& operators() const override {
    static constexpr OperatorTable kNothing{};
    return kNothing;
  }

 private:
  static tl::unexpected<Error> unused() { return make_error(ErrorCode::kUnsupported, "not part of a step"); }
  void pass_gate();
  // The token that follows a history; nothing: its logits are not finite.
  std::optional<int32_t> next(std::span<const int32_t> history, int32_t choice) const;
  void write_logits(std::span<const int32_t> history, int32_t choice, std::span<float> out) const;

  int32_t stop_token_;
  int32_t vocab_ = 0;
  int32_t num_tokens_ = 0;
  std::vector<int32_t> kv_;  // [block][32] tokens

  mutable std::mutex mutex_;  // of what a test's thread changes
  std::vector<Script> scripts_;
  std::condition_variable gate_;
  bool closed_ = false;
  bool someone_waits_ = false;
  int32_t passes_ = 0;

  // Of the latest step.
  StepId step_ = 0;
  std::vector<std::vector<int32_t>> histories_;  // [head rows]
  std::vector<RowResult> results_;
  std::vector<float> logits_;  // [vocab] of one row

  std::atomic<uint64_t> num_steps_ = 0;
  std::atomic<uint64_t> num_prompt_rows_ = 0;
  std::atomic<uint64_t> num_generated_rows_ = 0;
};

// A model on such a backend with the genuine tokenizer and template (variant instruct).
struct ScriptedModel {
  std::unique_ptr<Model> model;
  ScriptedBackend* backend;  // the model's
};
// context: positions; a step has up to 64 tokens and `max_sequences` sequences.
ScriptedModel open_scripted(int32_t num_blocks, int32_t max_sequences, int32_t context = 1024);

}  // namespace kipp::testing
