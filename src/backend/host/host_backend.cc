// The backend contract around forward.cc: steps run at once, so enqueueing is computing, and a sampled id is known as
// soon as sample() returns.
#include "backend/host/host_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/host/forward.h"
#include "backend/host/host_model.h"
#include "backend/host/kv_storage.h"
#include "backend/host/stateless.h"
#include "backend/host/workspace.h"
#include "backend/validate_batch.h"
#include "base/machine.h"
#include "base/seeded_fault.h"
#include "sampling/sampler.h"

namespace kipp::host {
namespace {

constexpr size_t kMaxUncollected = 2;  // of the contract
// Wide enough to use the weights well, and at most seconds of the slowest model on a slow machine.
constexpr int32_t kPreferredTokens = 64;

tl::unexpected<Error> invalid(std::string message) {
  return make_error(ErrorCode::kInvalidArgument, std::move(message));
}

// What load() makes.
struct Loaded {
  Limits limits;
  int32_t num_tokens;  // ids below it may be sampled
  HostModel model;
  KvStorage kv;
  Workspace workspace;
};

struct Step {
  StepId id = 0;
  int32_t num_rows = 0;
  std::optional<std::vector<RowResult>> sampled;  // [num_rows]
};

class HostBackend final : public Backend {
 public:
  HostBackend(std::string_view name, std::unique_ptr<Operators> ops, bool round_kv)
      : name_(name), ops_(std::move(ops)), round_kv_(round_kv) {}

  Result<MemoryPlan> plan(const ModelFile& file, const Limits& limits) const override;
  Result<void> load(const ModelFile& file, const Limits& limits, int32_t num_blocks) override;
  Result<StepId> forward(const Batch& batch) override;
  Result<void> sample(StepId step, std::span<const SampleRow> rows) override;
  Result<void> collect(StepId step, std::span<RowResult> results) override;
  Result<void> logits(StepId step, int32_t row, std::span<float> out) override;
  Result<void> evaluate_stateless(std::span<const int32_t> tokens, const StatelessObserver& observer) override;
  Result<void> copy_blocks(std::span<const int32_t> from, std::span<const int32_t> to) override;
  Result<void> read_block(int32_t block, KvBlock& out) const override;
  Result<void> write_block(int32_t block, const KvBlock& in) override;
  int32_t preferred_tokens_per_step() const override { return kPreferredTokens; }
  Report report() const override { return ops_->report(); }
  const OperatorTable& operators() const override { return ops_->table(); }

 private:
  KvType kv_type() const { return round_kv_ ? KvType::kBf16 : KvType::kF32; }
  Result<void> check_loaded() const;
  Result<void> resolve_tokens(std::span<const TokenRef> tokens);
  std::span<const float> row_of_logits(int32_t row) const;

  std::string name_;
  std::unique_ptr<Operators> ops_;
  bool round_kv_;
  std::optional<Loaded> loaded_;
  std::vector<Step> uncollected_;  // oldest first
  Step latest_;                    // the step whose logits and sampled ids stand; id 0 before the first
};

Result<MemoryPlan> HostBackend::plan(const ModelFile& file, const Limits& limits) const {
  const Dimensions& dimensions = file.info().dimensions;
  return MemoryPlan{.weights_bytes = 0,  // used where they are mapped
                    .workspace_bytes = Workspace::bytes(dimensions, limits.max_tokens_per_step, limits.max_head_rows),
                    .kv_block_bytes = KvStorage::block_bytes(dimensions, kv_type()),
                    .available_bytes = available_memory_bytes()};
}

Result<void> HostBackend::load(const ModelFile& file, const Limits& limits, int32_t num_blocks) {
  KIPP_TRY(validate_limits(name_, limits, num_blocks));
  KIPP_ASSIGN(const MemoryPlan memory, plan(file, limits));
  const size_t pool_bytes = memory.kv_block_bytes * static_cast<size_t>(num_blocks);
  if (memory.workspace_bytes + pool_bytes > memory.available_bytes) {
    return make_error(ErrorCode::kCapacity,
                      fmt::format("{}: needs {} bytes of memory (workspace {}, {} KV blocks {}), but {} are available",
                                  name_, memory.workspace_bytes + pool_bytes, memory.workspace_bytes, num_blocks,
                                  pool_bytes, memory.available_bytes));
  }
  HostModel model = bind_weights(file);
  KIPP_ASSIGN(auto kv, KvStorage::create(model.dimensions, num_blocks, kv_type()));
  KIPP_ASSIGN(auto workspace, Workspace::create(model.dimensions, limits.max_tokens_per_step, limits.max_head_rows));
  loaded_.emplace(Loaded{limits, file.info().num_tokens(), std::move(model), std::move(kv), std::move(workspace)});
  uncollected_.clear();
  latest_ = {};
  return {};
}

Result<void> HostBackend::check_loaded() const {
  return loaded_ ? Result<void>{} : make_error(ErrorCode::kInternal, name_ + ": no model is loaded");
}

Result<StepId> HostBackend::forward(const Batch& batch) {
  KIPP_TRY(check_loaded());
  if (uncollected_.size() == kMaxUncollected) {
    return invalid(fmt::format("{}: {} steps are not collected: collect step {} first", name_, kMaxUncollected,
                               uncollected_.front().id));
  }
  const int32_t previous_rows = latest_.sampled ? latest_.num_rows : 0;
  KIPP_TRY(
      validate_batch(batch, loaded_->limits, loaded_->kv.num_blocks(), loaded_->model.dimensions.vocab, previous_rows));
  KIPP_TRY(resolve_tokens(batch.tokens));
  const StepInput input{batch.spans, static_cast<int32_t>(batch.tokens.size()), batch.head_rows};
  try {
    host::forward(loaded_->model, input, loaded_->kv, loaded_->workspace, *ops_);
  } catch (const std::bad_alloc&) {  // the scratch of attention
    return make_error(ErrorCode::kCapacity, name_ + ": out of memory inside a step");
  }
  latest_ = {.id = latest_.id + 1, .num_rows = static_cast<int32_t>(batch.head_rows.size()), .sampled = {}};
  uncollected_.push_back(latest_);
  return latest_.id;
}

Result<void> HostBackend::resolve_tokens(std::span<const TokenRef> tokens) {
  for (size_t t = 0; t < tokens.size(); ++t) {
    int32_t id = tokens[t].token;
    if (tokens[t].from_row >= 0) {
      id = (*latest_.sampled)[static_cast<size_t>(tokens[t].from_row)].token.id;
      if (id < 0) {
        return make_error(ErrorCode::kNumerical,
                          fmt::format("token {}: row {} of step {} had logits that are not finite", t,
                                      tokens[t].from_row, latest_.id));
      }
    }
    loaded_->workspace.ids.data()[t] = id;
  }
  return {};
}

std::span<const float> HostBackend::row_of_logits(int32_t row) const {
  if (seeded(Fault::kHeadRowsSwapped)) row = latest_.num_rows - 1 - row;
  const auto vocab = static_cast<size_t>(loaded_->model.dimensions.vocab);
  return loaded_->workspace.logits.span().subspan(static_cast<size_t>(row) * vocab, vocab);
}

Result<void> HostBackend::sample(StepId step, std::span<const SampleRow> rows) {
  if (step == 0 || latest_.id != step || latest_.sampled) {
    return invalid(fmt::format("sampling step {}: only the latest step can be sampled, and only once", step));
  }
  if (rows.size() != static_cast<size_t>(latest_.num_rows)) {
    return invalid(fmt::format("sampling step {}: expected {} rows, found {}", step, latest_.num_rows, rows.size()));
  }
  // A draw reads the whole vocabulary: 64 of them on one thread would be a good part of a step on many.
  std::vector<Result<SampledToken>> tokens(rows.size());
  try {
    ops_->threads().parallel_for(latest_.num_rows, 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const auto r = static_cast<size_t>(row);
        tokens[r] = sample_token(row_of_logits(static_cast<int32_t>(row)), rows[r], loaded_->num_tokens);
      }
    });
  } catch (const std::bad_alloc&) {
    return make_error(ErrorCode::kCapacity, name_ + ": out of memory while drawing");
  }
  std::vector<RowResult> results(rows.size());
  for (size_t r = 0; r < rows.size(); ++r) {
    if (tokens[r]) {
      results[r].token = *std::move(tokens[r]);
    } else if (tokens[r].error().code == ErrorCode::kNumerical) {
      results[r].finite = false;
    } else {
      return make_error(tokens[r].error().code, fmt::format("row {}: {}", r, tokens[r].error().message));
    }
  }
  latest_.sampled = std::move(results);
  if (uncollected_.empty() || uncollected_.back().id != step) {
    uncollected_.push_back(latest_);
  }
  uncollected_.back() = latest_;
  return {};
}

Result<void> HostBackend::collect(StepId step, std::span<RowResult> results) {
  const auto found =
      std::find_if(uncollected_.begin(), uncollected_.end(), [&](const Step& s) { return s.id == step; });
  if (found == uncollected_.end()) {
    return invalid(fmt::format("collecting step {}: there is no such step, or it was collected", step));
  }
  const size_t expected = found->sampled ? found->sampled->size() : 0;
  if (results.size() != expected) {
    return invalid(
        fmt::format("collecting step {}: {} rows were sampled, found room for {}", step, expected, results.size()));
  }
  if (found->sampled) {
    std::move(found->sampled->begin(), found->sampled->end(), results.begin());
  }
  uncollected_.erase(found);
  return {};
}

Result<void> HostBackend::logits(StepId step, int32_t row, std::span<float> out) {
  KIPP_TRY(check_loaded());
  if (step == 0 || step != latest_.id) {
    return invalid(fmt::format("logits of step {}: those of step {} stand", step, latest_.id));
  }
  if (row < 0 || row >= latest_.num_rows) {
    return invalid(fmt::format("logits of step {}: expected a row in [0, {}), found {}", step, latest_.num_rows, row));
  }
  const auto logits = row_of_logits(row);
  if (out.size() != logits.size()) {
    return invalid(fmt::format("logits: expected room for {} values, found {}", logits.size(), out.size()));
  }
  std::copy(logits.begin(), logits.end(), out.begin());
  return {};
}

Result<void> HostBackend::evaluate_stateless(std::span<const int32_t> tokens, const StatelessObserver& observer) {
  KIPP_TRY(check_loaded());
  KIPP_TRY(validate_stateless(tokens, loaded_->limits, loaded_->model.dimensions.vocab));
  return host::evaluate_stateless(loaded_->model, tokens, round_kv_, *ops_, observer);
}

Result<void> HostBackend::copy_blocks(std::span<const int32_t> from, std::span<const int32_t> to) {
  KIPP_TRY(check_loaded());
  return loaded_->kv.copy(from, to);
}

Result<void> HostBackend::read_block(int32_t block, KvBlock& out) const {
  KIPP_TRY(check_loaded());
  return loaded_->kv.read(block, out);
}

Result<void> HostBackend::write_block(int32_t block, const KvBlock& in) {
  KIPP_TRY(check_loaded());
  return loaded_->kv.write(block, in);
}

}  // namespace

Result<int32_t> choose_threads(std::string_view name, const BackendOptions& options) {
  constexpr int32_t kMaxThreads = 4096;
  if (options.num_threads < 0 || options.num_threads > kMaxThreads) {
    return invalid(fmt::format("{}: expected 0 to {} threads, found {}", name, kMaxThreads, options.num_threads));
  }
  if (options.device != 0) {
    return invalid(fmt::format("{}: expected device 0, found {}", name, options.device));
  }
  return options.num_threads == 0 ? available_processors() : options.num_threads;
}

std::unique_ptr<Backend> make_host_backend(std::string_view name, std::unique_ptr<Operators> ops, bool round_kv) {
  return std::make_unique<HostBackend>(name, std::move(ops), round_kv);
}

}  // namespace kipp::host
