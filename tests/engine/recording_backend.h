// A backend that computes nothing and writes down what the engine asks of it, and a model on it.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "engine/model_impl.h"

namespace kipp {

// A span with copies of what it only refers to.
struct SeenSpan {
  Span span;
  std::vector<int32_t> blocks;
  std::vector<int32_t> tokens;
};

// All logits of a row are value_of(step, row). They stand until the next step, as the contract says.
class RecordingBackend final : public Backend {
 public:
  static float value_of(StepId step, int32_t row) {
    return static_cast<float>(step) * 100.0F + static_cast<float>(row);
  }

  Result<StepId> forward(const Batch& batch) override;
  Result<void> collect(StepId, std::span<RowResult>) override { return {}; }
  Result<void> logits(StepId step, int32_t row, std::span<float> out) override;

  Result<MemoryPlan> plan(const ModelFile&, const Limits&) const override { return unused(); }
  Result<void> load(const ModelFile&, const Limits&, int32_t) override { return unused(); }
  Result<void> sample(StepId, std::span<const SampleRow>) override { return unused(); }
  Result<void> evaluate_stateless(std::span<const int32_t>, const StatelessObserver&) override { return unused(); }
  Result<void> copy_blocks(std::span<const int32_t>, std::span<const int32_t>) override { return unused(); }
  Result<void> read_block(int32_t, KvBlock&) const override { return unused(); }
  Result<void> write_block(int32_t, const KvBlock&) override { return unused(); }
  int32_t preferred_tokens_per_step() const override { return 1; }
  Report report() const override { return {}; }
  const OperatorTable& operators() const override {
    static constexpr OperatorTable kNothing{};
    return kNothing;
  }

  std::vector<std::vector<SeenSpan>> steps;
  std::vector<std::vector<int32_t>> head_rows;      // of each step
  std::vector<std::pair<StepId, int32_t>> fetched;  // rows whose logits were asked for
  bool fails_to_fetch = false;

 private:
  static tl::unexpected<Error> unused() { return make_error(ErrorCode::kInternal, "not part of an evaluation"); }
};

// The twin's file and tokenizer on such a backend: 48 tokens, 4 sequences and 4 head rows a step, a context of 128, 8
// blocks. Null, and a failed test, if the file cannot be opened.
std::unique_ptr<Model::Impl> make_recorded_model();

}  // namespace kipp
