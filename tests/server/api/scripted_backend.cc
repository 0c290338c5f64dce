// See scripted_backend.h.
#include "server/api/scripted_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "base/block_positions.h"
#include "engine/model_impl.h"
#include "sampling/sampler.h"

namespace kipp::testing {
namespace {

constexpr float kSaid = 300.0F;  // no bias of 100 and no temperature below 10 makes another token likely
constexpr int32_t kTokensPerStep = 64;

// Of tokens that are not meant: below 0, different, and the same every time.
float unsaid(int32_t id) {
  return -1.0F - static_cast<float>(static_cast<uint32_t>(id) * 2654435761U >> 16U) / 65536.0F;
}

size_t place(std::span<const int32_t> block_table, int32_t position) {
  const auto block = static_cast<size_t>(block_table[static_cast<size_t>(position / kBlockPositions)]);
  return block * kBlockPositions + static_cast<size_t>(position % kBlockPositions);
}

}  // namespace

void ScriptedBackend::add(Script script) {
  const std::lock_guard lock(mutex_);
  std::erase_if(scripts_, [&](const Script& known) { return known.prompt == script.prompt; });
  scripts_.push_back(std::move(script));
}

void ScriptedBackend::close_gate(int32_t steps) {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  passes_ = steps;
  gate_.notify_all();
}

void ScriptedBackend::open_gate() {
  const std::lock_guard lock(mutex_);
  closed_ = false;
  gate_.notify_all();
}

void ScriptedBackend::wait_at_gate() {
  std::unique_lock lock(mutex_);
  EXPECT_TRUE(gate_.wait_for(lock, std::chrono::seconds(60), [this] { return someone_waits_ && passes_ == 0; }));
}

void ScriptedBackend::pass_gate() {
  std::unique_lock lock(mutex_);
  someone_waits_ = true;
  gate_.notify_all();
  gate_.wait(lock, [this] { return !closed_ || passes_ > 0; });
  someone_waits_ = false;
  if (closed_) --passes_;
}

Result<void> ScriptedBackend::load(const ModelFile& file, const Limits&, int32_t num_blocks) {
  vocab_ = file.info().dimensions.vocab;
  num_tokens_ = file.info().num_tokens();
  kv_.assign(static_cast<size_t>(num_blocks) * kBlockPositions, -1);
  logits_.resize(static_cast<size_t>(vocab_));
  return {};
}

Result<StepId> ScriptedBackend::forward(const Batch& batch) {
  pass_gate();
  const std::vector<RowResult> previous = std::exchange(results_, {});
  histories_.clear();
  size_t token = 0;
  size_t head = 0;
  for (const Span& span : batch.spans) {
    auto& rows = span.row_class == RowClass::kPrompt ? num_prompt_rows_ : num_generated_rows_;
    rows += static_cast<uint64_t>(span.num_tokens);
    for (int32_t i = 0; i < span.num_tokens; ++i, ++token) {
      const TokenRef& ref = batch.tokens[token];
      const int32_t id = ref.from_row < 0 ? ref.token : previous.at(static_cast<size_t>(ref.from_row)).token.id;
      const int32_t position = span.first_position + i;
      kv_[place(span.block_table, position)] = id;
      if (head == batch.head_rows.size() || batch.head_rows[head] != static_cast<int32_t>(token)) continue;
      ++head;
      std::vector<int32_t>& history = histories_.emplace_back();
      for (int32_t p = 0; p <= position; ++p) history.push_back(kv_[place(span.block_table, p)]);
    }
  }
  ++num_steps_;
  return ++step_;
}

std::optional<int32_t> ScriptedBackend::next(std::span<const int32_t> history, int32_t choice) const {
  const std::lock_guard lock(mutex_);
  const Script* found = nullptr;
  for (const Script& script : scripts_) {
    const bool fits = script.prompt.size() <= history.size() &&
                      std::equal(script.prompt.begin(), script.prompt.end(), history.begin());
    if (fits && (found == nullptr || found->prompt.size() < script.prompt.size())) found = &script;
  }
  if (found == nullptr) return stop_token_;
  const std::span<const int32_t> said = history.subspan(found->prompt.size());
  if (found->breaks_at && said.size() >= *found->breaks_at) return std::nullopt;
  const std::vector<int32_t>& script =
      found->choices.at(std::min(static_cast<size_t>(choice), found->choices.size() - 1));
  const bool keeps_to_it = said.size() <= script.size() && std::equal(said.begin(), said.end(), script.begin());
  EXPECT_TRUE(keeps_to_it) << "the blocks of a row hold another text than was said";
  return keeps_to_it && said.size() < script.size() ? script[said.size()] : stop_token_;
}

void ScriptedBackend::write_logits(std::span<const int32_t> history, int32_t choice, std::span<float> out) const {
  const std::optional<int32_t> said = next(history, choice);
  for (int32_t id = 0; id < vocab_; ++id) out[static_cast<size_t>(id)] = unsaid(id);
  const auto best = static_cast<size_t>(said.value_or(0));
  out[best] = said ? kSaid : std::numeric_limits<float>::quiet_NaN();
}

Result<void> ScriptedBackend::sample(StepId step, std::span<const SampleRow> rows) {
  if (step != step_ || rows.size() != histories_.size()) return make_error(ErrorCode::kInvalidArgument, "wrong step");
  results_.clear();
  for (size_t r = 0; r < rows.size(); ++r) {
    write_logits(histories_[r], rows[r].choice, logits_);
    auto token = sample_token(logits_, rows[r], num_tokens_);
    if (!token && token.error().code != ErrorCode::kNumerical) return tl::unexpected<Error>(token.error());
    results_.push_back(token ? RowResult{.token = *std::move(token)} : RowResult{.token = {.id = -1}, .finite = false});
  }
  return {};
}

Result<void> ScriptedBackend::collect(StepId step, std::span<RowResult> results) {
  if (step != step_ || results.size() != results_.size()) return make_error(ErrorCode::kInvalidArgument, "wrong step");
  std::ranges::copy(results_, results.begin());
  return {};
}

Result<void> ScriptedBackend::logits(StepId step, int32_t row, std::span<float> out) {
  if (step != step_) return make_error(ErrorCode::kInvalidArgument, "logits that do not stand");
  write_logits(histories_.at(static_cast<size_t>(row)), 0, out);
  return {};
}

Result<void> ScriptedBackend::copy_blocks(std::span<const int32_t> from, std::span<const int32_t> to) {
  for (size_t i = 0; i < from.size(); ++i) {
    const auto block = [this](int32_t id) { return kv_.begin() + static_cast<std::ptrdiff_t>(id) * kBlockPositions; };
    std::copy_n(block(from[i]), kBlockPositions, block(to[i]));
  }
  return {};
}

ScriptedModel open_scripted(int32_t num_blocks, int32_t max_sequences, int32_t context) {
  auto file = ModelFile::open(KIPP_TWIN_ARTIFACT, {.allow_synthetic = true}).value();
  auto tokenizer = Tokenizer::create(file.tokenizer()).value();
  auto backend = std::make_unique<ScriptedBackend>(file.info().stop_token_ids.front());
  ScriptedBackend* scripted = backend.get();
  const Limits limits{.max_tokens_per_step = kTokensPerStep,
                      .max_sequences = max_sequences,
                      .max_head_rows = kTokensPerStep,
                      .context = context};
  EXPECT_TRUE(backend->load(file, limits, num_blocks).has_value());
  auto impl = std::make_unique<Model::Impl>(
      Model::Impl{std::move(file), std::move(tokenizer), limits, std::move(backend), BlockPool(num_blocks, 7), {}});
  return {.model = std::make_unique<Model>(std::move(impl)), .backend = scripted};
}

}  // namespace kipp::testing
