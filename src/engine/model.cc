// Opening an artifact on a backend, and batched evaluation.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "engine/evaluate.h"
#include "engine/model_impl.h"
#include "kipp/engine.h"

namespace kipp {
namespace {

constexpr int32_t kDefaultContext = 4096;
constexpr int32_t kMinHeadRows = 64;  // 37 MiB of logits
constexpr int32_t kMostSequences = 1024;

Result<int32_t> choose_context(const ArtifactInfo& info, const ModelOptions& options) {
  const int32_t most = info.dimensions.context;
  if (options.context < 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("context: expected 0 (the default) or 1 to {}, found {}", most, options.context));
  }
  if (options.context > most) {
    return make_error(ErrorCode::kCapacity, fmt::format("context: {} holds at most {} positions, found {}",
                                                        info.checkpoint->id, most, options.context));
  }
  return options.context == 0 ? std::min(most, kDefaultContext) : options.context;
}

Result<int32_t> choose_blocks(const Backend& backend, const ModelFile& file, const Limits& limits,
                              const ModelOptions& options) {
  const int32_t of_context = blocks_for(limits.context);
  if (options.num_blocks > 0) return options.num_blocks;
  if (options.kv_share <= 0) return of_context;
  KIPP_ASSIGN(const MemoryPlan plan, backend.plan(file, limits));
  const size_t taken = std::min(plan.available_bytes, plan.weights_bytes + plan.workspace_bytes);
  const double spare = static_cast<double>(plan.available_bytes - taken) * std::min(1.0, options.kv_share);
  const double fit = spare / static_cast<double>(plan.kv_block_bytes);
  const double most = static_cast<double>(of_context) * limits.max_sequences;
  return std::max(1, static_cast<int32_t>(std::min({fit, most, static_cast<double>(INT32_MAX)})));
}

}  // namespace

Result<std::unique_ptr<Model>> Model::open(const std::filesystem::path& artifact, const ModelOptions& options) {
  if (options.num_blocks < 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("num_blocks: expected 0 (the default) or more, found {}", options.num_blocks));
  }
  if (options.max_sequences < 1 || options.max_sequences > kMostSequences) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("max_sequences: expected 1 to {}, found {}", kMostSequences, options.max_sequences));
  }
  KIPP_ASSIGN(auto backend, create_backend(options.backend, {.num_threads = options.num_threads,
                                                             .device = options.device,
                                                             .round_kv = options.round_kv,
                                                             .precision = options.precision,
                                                             .isa = options.isa,
                                                             .on_uploaded = options.on_copied}));
  KIPP_ASSIGN(auto file, ModelFile::open(artifact, {.allow_synthetic = options.allow_synthetic,
                                                    .copy = options.copy_weights,
                                                    .on_progress = options.on_copied}));
  KIPP_ASSIGN(const int32_t context, choose_context(file.info(), options));
  KIPP_ASSIGN(auto tokenizer, Tokenizer::create(file.tokenizer()));
  const Limits limits{
      .max_tokens_per_step = std::max(Limits{}.max_tokens_per_step, backend->preferred_tokens_per_step()),
      .max_sequences = options.max_sequences,
      .max_head_rows = std::max(kMinHeadRows, options.max_sequences),
      .context = context};
  KIPP_ASSIGN(const int32_t num_blocks, choose_blocks(*backend, file, limits, options));
  auto impl =
      std::make_unique<Impl>(Impl{std::move(file), std::move(tokenizer), limits, std::move(backend), BlockPool(0), {}});
  KIPP_TRY(impl->backend->load(impl->file, limits, num_blocks));
  impl->pool = BlockPool(num_blocks, options.placement_seed);  // only now: loading refuses what does not fit
  return std::unique_ptr<Model>(new Model(std::move(impl)));
}

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::~Model() = default;

const ArtifactInfo& Model::info() const {
  return impl_->file.info();
}
const Tokenizer& Model::tokenizer() const {
  return impl_->tokenizer;
}
Backend& Model::backend() {
  return *impl_->backend;
}
int32_t Model::context() const {
  return impl_->limits.context;
}
int32_t Model::num_free_blocks() const {
  return impl_->pool.num_free();
}

Result<Session> Model::new_session() {
  return Session(std::make_unique<Session::Impl>(*impl_));
}

Result<void> Model::run(std::span<const StepRequest> requests, std::vector<std::vector<std::vector<float>>>* rows) {
  std::vector<Evaluation> evaluations;
  evaluations.reserve(requests.size());
  for (const StepRequest& request : requests) {
    evaluations.push_back({.session = request.session->impl_.get(),
                           .tokens = request.tokens,
                           .head_rows = request.head_rows,
                           .row_class = request.generated ? RowClass::kGenerated : RowClass::kPrompt});
  }
  return evaluate(*impl_, evaluations, rows);
}

Result<void> Model::step(std::span<const StepRequest> requests) {
  return run(requests, nullptr);
}

Result<std::vector<std::vector<std::vector<float>>>> Model::step_all_logits(std::span<const StepRequest> requests) {
  std::vector<std::vector<std::vector<float>>> rows;
  KIPP_TRY(run(requests, &rows));
  return rows;
}

}  // namespace kipp
