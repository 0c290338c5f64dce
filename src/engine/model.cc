// Opening an artifact on a backend, and batched evaluation.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/evaluate.h"
#include "engine/model_impl.h"
#include "kipp/engine.h"

namespace kipp {
namespace {

constexpr int32_t kDefaultContext = 4096;
constexpr int32_t kMaxSequences = 64;
constexpr int32_t kMaxHeadRows = 64;  // 37 MiB of logits

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

}  // namespace

Result<std::unique_ptr<Model>> Model::open(const std::filesystem::path& artifact, const ModelOptions& options) {
  if (options.num_blocks < 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("num_blocks: expected 0 (the default) or more, found {}", options.num_blocks));
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
  const int32_t num_blocks = options.num_blocks == 0 ? blocks_for(context) : options.num_blocks;
  const Limits limits{
      .max_tokens_per_step = std::max(Limits{}.max_tokens_per_step, backend->preferred_tokens_per_step()),
      .max_sequences = kMaxSequences,
      .max_head_rows = kMaxHeadRows,
      .context = context};
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
