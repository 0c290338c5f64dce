// See recording_backend.h.
#include "engine/recording_backend.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace kipp {

Result<StepId> RecordingBackend::forward(const Batch& batch) {
  size_t token = 0;
  std::vector<SeenSpan> step;
  for (const Span& span : batch.spans) {
    SeenSpan& seen = step.emplace_back(SeenSpan{span, {span.block_table.begin(), span.block_table.end()}, {}});
    for (int32_t t = 0; t < span.num_tokens; ++t) {
      seen.tokens.push_back(batch.tokens[token++].token);
    }
  }
  steps.push_back(std::move(step));
  head_rows.emplace_back(batch.head_rows.begin(), batch.head_rows.end());
  return steps.size();
}

Result<void> RecordingBackend::logits(StepId step, int32_t row, std::span<float> out) {
  if (fails_to_fetch) {
    return make_error(ErrorCode::kInternal, "the device is gone");
  }
  if (step != steps.size() || row < 0 || static_cast<size_t>(row) >= head_rows.back().size()) {
    return make_error(ErrorCode::kInvalidArgument, "logits that do not stand");
  }
  fetched.emplace_back(step, row);
  std::ranges::fill(out, value_of(step, row));
  return {};
}

std::unique_ptr<Model::Impl> make_recorded_model() {
  auto file = ModelFile::open(KIPP_TWIN_ARTIFACT, {.allow_synthetic = true});
  if (!file) {
    ADD_FAILURE() << file.error().message;
    return nullptr;
  }
  auto tokenizer = Tokenizer::create(file->tokenizer());
  if (!tokenizer) {
    ADD_FAILURE() << tokenizer.error().message;
    return nullptr;
  }
  const Limits limits{.max_tokens_per_step = 48, .max_sequences = 4, .max_head_rows = 4, .context = 128};
  return std::make_unique<Model::Impl>(Model::Impl{
      *std::move(file), *std::move(tokenizer), limits, std::make_unique<RecordingBackend>(), BlockPool(8), {}});
}

}  // namespace kipp
